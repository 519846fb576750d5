package inbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/txn"
)

// awaitGone returns once the server has ended a session.
func (b *books) awaitGone(pid uint32) {
	deadline := time.Now().Add(limit)
	for b.count(`select count(*) from pg_stat_activity where pid = $1`, int64(pid)) > 0 {
		if time.Now().After(deadline) {
			b.t.Error("waited in vain for the end of a session")
			return
		}
	}
}

// losing enters, and has the server end the session of one message's handler before that returns, without an error and without
// a statement that would run into it.
func (b *books) losing(id string, end func(tx pgx.Tx, pid uint32) error) func(pgx.Tx, inbox.Message) error {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := b.enter(tx, m); err != nil || m.ID != id {
			return err
		}
		pid := tx.Conn().PgConn().PID()
		if err := end(tx, pid); err != nil {
			return err
		}
		b.awaitGone(pid)
		return nil
	}
}

// dozing is idle in the transaction for longer than the server allows.
func (b *books) dozing(id string) func(pgx.Tx, inbox.Message) error {
	return b.losing(id, func(tx pgx.Tx, _ uint32) error {
		_, err := tx.Exec(context.Background(), `set local idle_in_transaction_session_timeout = '1ms'`)
		return err
	})
}

// terminated is ended from another session, as a person does.
func (b *books) terminated(id string) func(pgx.Tx, inbox.Message) error {
	return b.losing(id, func(_ pgx.Tx, pid uint32) error {
		_, err := b.pool.Exec(context.Background(), `select pg_terminate_backend($1)`, int64(pid))
		return err
	})
}

// bulk is batch for Bulk.
func (b *books) bulk(ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome {
	b.t.Helper()
	outcomes, err := inbox.Bulk(context.Background(), b.pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
		for _, m := range ms {
			if err := fn(tx, m); err != nil {
				return err
			}
		}
		return nil
	}, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return outcomes
}

func TestHandlerThatIsIdleForTooLongBeforeCommitIsCountedAndDies(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := messages("m", 1)
	for attempt := 1; attempt <= 3; attempt++ {
		want := "R"
		if attempt == 3 {
			want = "X"
		}
		outcomes := b.batch(ms, b.dozing(ms[0].ID), inbox.WithMaxAttempts(3))
		b.wantStates(want, outcomes)
		if !txn.TooSlow(outcomes[0].Err) {
			t.Errorf("the error is %v", outcomes[0].Err)
		}
		if n := b.attempts(ms[0].ID); want == "R" && n != attempt {
			t.Errorf("%d attempts are counted, want %d", n, attempt)
		}
		if n := b.runs.Load(); n != int64(attempt) {
			t.Errorf("the handler ran %d times in %d calls", n, attempt)
		}
		b.due()
	}
	b.wantOnce(0)
}

func TestHandlerThatIsIdleForTooLongIsCountedAndKeepsNobodyFromTheRest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle func(b *books, ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome
		at     []int // the loss is read by the next handler, or by COMMIT
		opts   []inbox.Option
	}{
		"Batch":             {(*books).batch, []int{0, 3}, nil},
		"Bulk":              {(*books).bulk, []int{0, 1}, nil},
		"Batch in order":    {(*books).batch, []int{1}, []inbox.Option{inbox.WithOrder()}},
		"in order in lanes": {(*books).batch, []int{1}, []inbox.Option{inbox.WithOrder(), inbox.WithLanes(2)}},
		"Bulk in order":     {(*books).bulk, []int{1}, []inbox.Option{inbox.WithOrder()}},
	} {
		for _, slow := range test.at {
			t.Run(name+" at "+string(rune('0'+slow)), func(t *testing.T) {
				t.Parallel()
				b := newBooks(t, connections(4))
				ms := keyed("a1", "b1", "c1", "d1")
				opts := append(slices.Clone(test.opts), inbox.WithMaxAttempts(3))
				want := []byte("DDDD")
				for _, state := range "RRX" {
					want[slow] = byte(state)
					before := b.runs.Load()
					b.wantStates(string(want), test.handle(b, ms, b.dozing(ms[slow].ID), opts...))
					if n := b.runs.Load() - before; n > 12 { // all four, both halves, and each alone
						t.Errorf("handlers of four messages ran %d times in a call", n)
					}
					if n := b.count(`select coalesce(sum(attempts), 0) from idem.inbox where id <> $1`, ms[slow].ID); n != 0 {
						t.Errorf("%d attempts are counted of the others", n)
					}
					want = []byte("dddd")
					b.due()
				}
				b.wantOnce(3)
			})
		}
	}
}

func TestNothingOvertakesAMessageWhoseSessionWasLost(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := keyed("a1", "s1", "s2", "a2")
	opts := []inbox.Option{inbox.WithOrder(), inbox.WithMaxAttempts(3)}
	b.wantStates("DRRD", b.batch(ms, b.dozing("s1"), opts...))
	b.due()
	b.wantStates("dDDd", b.batch(ms, b.enter, opts...))
	b.wantEntries("a1", "a2", "s1", "s2")
}

func TestSessionThatIsTerminatedInAHandlerPostponesItsMessageAlone(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(b *books, ms []inbox.Message, fn func(pgx.Tx, inbox.Message) error, opts ...inbox.Option) []inbox.Outcome{
		"Batch": (*books).batch, "Bulk": (*books).bulk,
	} {
		for _, cut := range []int{0, 4} {
			t.Run(name+" at "+string(rune('0'+cut)), func(t *testing.T) {
				t.Parallel()
				b := newBooks(t, connections(4))
				ms := messages("m", 5)
				want := []byte("DDDDD")
				want[cut] = 'R'
				b.wantStates(string(want), handle(b, ms, b.terminated(ms[cut].ID), inbox.WithMaxAttempts(1)))
				if n := b.runs.Load(); n > 5*(1+1+inbox.DefaultRetries)*4 { // all, two halves, their halves, and each alone
					t.Errorf("handlers of five messages ran %d times", n)
				}
				if n := b.count(`select coalesce(sum(attempts), 0) from idem.inbox`); n != 0 {
					t.Errorf("%d attempts are counted", n)
				}
				b.due()
				b.wantStates(strings.Repeat("d", cut)+"D"+strings.Repeat("d", 4-cut), handle(b, ms, b.enter))
				b.wantOnce(5)
			})
		}
	}
}

func TestSessionThatIsTerminatedInEachRunIsGivenUpAfterItsRetries(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.wantStates("R", b.batch(messages("m", 1), b.terminated("m-0000"), inbox.WithMaxAttempts(1)))
	if n := b.runs.Load(); n > 2+inbox.DefaultRetries {
		t.Errorf("the handler ran %d times", n)
	}
	if n := b.attempts("m-0000"); n != 0 {
		t.Errorf("%d attempts are counted", n)
	}
}

func TestSessionThatIsTerminatedOnceBeforeCommitIsMadeUpForAtOnce(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	var cut atomic.Bool
	fn := b.terminated("m-0002")
	b.wantStates("DDD", b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "m-0002" && !cut.Swap(true) {
			return fn(tx, m)
		}
		return b.enter(tx, m)
	}, inbox.WithRetries(0)))
	b.wantOnce(3)
}

func TestHandlerThatPanicsBecauseAnotherHasLostTheSessionIsNotCounted(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	fn := b.dozing("m-0001")
	outcomes := b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if err := fn(tx, m); err != nil {
			panic(err)
		}
		return nil
	}, inbox.WithMaxAttempts(1))
	b.wantStates("DXD", outcomes)
	b.wantOnce(2)
}

// What a handler has committed by a statement is committed, together with the memory of the messages behind it, which it has not handled.
func TestHandlerThatCommitsAndLosesItsConnectionLosesNoMessageBehindIt(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]error{"without an error": nil, "with an error": errors.New("mistaken")} {
		for how, opts := range map[string][]inbox.Option{"": nil, " in order": {inbox.WithOrder()}} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				b := newBooks(t)
				ms := keyed("a1", "b1", "c1", "d1")
				commits := b.losing(ms[1].ID, func(tx pgx.Tx, pid uint32) error {
					if _, err := tx.Exec(context.Background(), "commit"); err != nil {
						return err
					}
					_, err := b.pool.Exec(context.Background(), `select pg_terminate_backend($1)`, int64(pid))
					return err
				})
				outcomes := b.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
					if err := commits(tx, m); err != nil || m.ID != ms[1].ID {
						return err
					}
					_, err := tx.Exec(context.Background(), "select 1") // finds out
					if returns != nil {
						return returns
					}
					return err
				}, opts...)
				b.wantStates("DXDD", outcomes)
				for _, m := range ms {
					if n := b.count(`select count(*) from books where id = $1`, m.ID); n != 1 {
						t.Errorf("%s has %d effects", m.ID, n)
					}
				}
			})
		}
	}
}

// The call may be over by then.
func TestHandlerThatCommitsAsTheCallEndsLosesNoMessageBehindIt(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"and loses its connection": true, "and keeps its connection": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			ms := keyed("a1", "b1", "c1")
			ctx, leave := context.WithCancel(t.Context())
			_, _ = inbox.Batch(ctx, b.pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
				if err := b.enter(tx, m); err != nil || m.ID != ms[0].ID {
					return err
				}
				if _, err := tx.Exec(context.Background(), "commit"); err != nil {
					return err
				}
				leave()
				if lose {
					_, err := tx.Exec(ctx, "select 1")
					return err
				}
				return nil
			})
			outcomes := b.batch(ms, b.enter)
			if states(outcomes)[1:] != "DD" {
				t.Errorf("the outcomes are %s", states(outcomes))
			}
			for _, m := range ms {
				if n := b.count(`select count(*) from books where id = $1`, m.ID); n != 1 {
					t.Errorf("%s has %d effects", m.ID, n)
				}
			}
		})
	}
}
