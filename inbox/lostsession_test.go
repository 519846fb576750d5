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

// awaitGone waits until the server has ended a session.
func (b *fixture) awaitGone(pid uint32) {
	deadline := time.Now().Add(limit)
	for b.count(`select count(*) from pg_stat_activity where pid = $1`, int64(pid)) > 0 {
		if time.Now().After(deadline) {
			b.t.Error("timed out waiting for the end of a session")
			return
		}
	}
}

// losing returns a handler that records each message. For one message it lets end end the session,
// waits until the session is gone, and returns no error.
func (b *fixture) losing(id string, end func(tx pgx.Tx, pid uint32) error) func(pgx.Tx, inbox.Message) error {
	return func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != id {
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

// idleTooLong returns a handler that exceeds idle_in_transaction_session_timeout for one message.
func (b *fixture) idleTooLong(id string) func(pgx.Tx, inbox.Message) error {
	return b.losing(id, func(tx pgx.Tx, _ uint32) error {
		_, err := tx.Exec(context.Background(), `set local idle_in_transaction_session_timeout = '1ms'`)
		return err
	})
}

// terminated returns a handler whose session is terminated from another session for one message.
func (b *fixture) terminated(id string) func(pgx.Tx, inbox.Message) error {
	return b.losing(id, func(_ pgx.Tx, pid uint32) error {
		_, err := b.pool.Exec(context.Background(), `select pg_terminate_backend($1)`, int64(pid))
		return err
	})
}

func TestBatch_DeadLettersAnIdleTimeoutAtCommit(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 1)
	for attempt := 1; attempt <= 3; attempt++ {
		want := "R"
		if attempt == 3 {
			want = "X"
		}
		outcomes := b.batch(ms, b.idleTooLong(ms[0].ID), inbox.WithMaxAttempts(3))
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

func TestBatch_CountsAnIdleTimeoutAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle handling
		at     []int // the loss is read by the next handler, or by COMMIT
		opts   []inbox.Option
	}{
		"Batch":             {(*fixture).batch, []int{0, 3}, nil},
		"Bulk":              {(*fixture).bulk, []int{0, 1}, nil},
		"Batch in order":    {(*fixture).batch, []int{1}, []inbox.Option{inbox.WithOrder()}},
		"in order in lanes": {(*fixture).batch, []int{1}, []inbox.Option{inbox.WithOrder(), inbox.WithLanes(2)}},
		"Bulk in order":     {(*fixture).bulk, []int{1}, []inbox.Option{inbox.WithOrder()}},
	} {
		for _, slow := range test.at {
			t.Run(name+" at "+string(rune('0'+slow)), func(t *testing.T) {
				t.Parallel()
				b := newFixture(t, connections(4))
				ms := keyed("a1", "b1", "c1", "d1")
				opts := append(slices.Clone(test.opts), inbox.WithMaxAttempts(3))
				want := []byte("DDDD")
				for _, state := range "RRX" {
					want[slow] = byte(state)
					before := b.runs.Load()
					b.wantStates(string(want), test.handle(b, ms, b.idleTooLong(ms[slow].ID), opts...))
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

func TestWithOrder_BlocksAfterALostSession(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := keyed("a1", "s1", "s2", "a2")
	opts := []inbox.Option{inbox.WithOrder(), inbox.WithMaxAttempts(3)}
	b.wantStates("DRRD", b.batch(ms, b.idleTooLong("s1"), opts...))
	b.due()
	b.wantStates("dDDd", b.batch(ms, b.record, opts...))
	b.wantEffects("a1", "a2", "s1", "s2")
}

func TestBatch_PostponesATerminatedSessionAlone(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
		for _, cut := range []int{0, 4} {
			t.Run(name+" at "+string(rune('0'+cut)), func(t *testing.T) {
				t.Parallel()
				b := newFixture(t, connections(4))
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
				b.wantStates(strings.Repeat("d", cut)+"D"+strings.Repeat("d", 4-cut), handle(b, ms, b.record))
				b.wantOnce(5)
			})
		}
	}
}

func TestBatch_PostponesAfterItsRetries(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.wantStates("R", b.batch(messages("m", 1), b.terminated("m-0000"), inbox.WithMaxAttempts(1)))
	if n := b.runs.Load(); n > 2+inbox.DefaultRetries {
		t.Errorf("the handler ran %d times", n)
	}
	if n := b.attempts("m-0000"); n != 0 {
		t.Errorf("%d attempts are counted", n)
	}
}

func TestBatch_RerunsAfterATerminatedSession(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var cut atomic.Bool
	fn := b.terminated("m-0002")
	b.wantStates("DDD", b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "m-0002" && !cut.Swap(true) {
			return fn(tx, m)
		}
		return b.record(tx, m)
	}, inbox.WithRetries(0)))
	b.wantOnce(3)
}

func TestBatch_CountsOnlyTheHandlerThatLostTheSession(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	fn := b.idleTooLong("m-0001")
	outcomes := b.batch(messages("m", 3), func(tx pgx.Tx, m inbox.Message) error {
		if err := fn(tx, m); err != nil {
			panic(err)
		}
		return nil
	}, inbox.WithMaxAttempts(1))
	b.wantStates("DXD", outcomes)
	b.wantOnce(2)
}

// A COMMIT by a handler also commits the rows of the messages behind it, which are not handled yet.
func TestBatch_RepairsACommitWithALostConnection(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]error{"without an error": nil, "with an error": errors.New("mistaken")} {
		for how, opts := range map[string][]inbox.Option{"": nil, " in order": {inbox.WithOrder()}} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				b := newFixture(t)
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

func TestBatch_RepairsACommitAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]bool{"and loses its connection": true, "and keeps its connection": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			ms := keyed("a1", "b1", "c1")
			ctx, leave := context.WithCancel(t.Context())
			_, _ = inbox.Batch(ctx, b.pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
				if err := b.record(tx, m); err != nil || m.ID != ms[0].ID {
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
			outcomes := b.batch(ms, b.record)
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

// A handler that discards prepared statements affects later handlers of the batch, and COMMIT.
func TestBatch_CountsDiscardedStatementsAlone(t *testing.T) {
	t.Parallel()
	for _, discard := range []string{"discard plans; deallocate all"} {
		for how, handle := range map[string]handling{"Batch": (*fixture).batch, "Bulk": (*fixture).bulk} {
			for _, at := range []int{0, 4} {
				t.Run(discard+" in "+how+" at "+string(rune('0'+at)), func(t *testing.T) {
					t.Parallel()
					b := newFixture(t, connections(2))
					ms := messages("m", 5)
					fn := func(tx pgx.Tx, m inbox.Message) error {
						if err := b.record(tx, m); err != nil || m.ID != ms[at].ID {
							return err
						}
						_, err := tx.Exec(context.Background(), discard, pgx.QueryExecModeSimpleProtocol)
						return err
					}
					want := []byte("DDDDD")
					for range 2 {
						want[at] = 'R'
						b.wantStates(string(want), handle(b, ms, fn, inbox.WithMaxAttempts(3)))
						if n := b.count(`select coalesce(sum(attempts), 0) + coalesce(sum(hindered), 0) from idem.inbox where id <> $1`, ms[at].ID); n != 0 {
							t.Errorf("%d attempts are counted of the others", n)
						}
						b.due()
						want = []byte("ddddd")
					}
					b.wantOnce(4)
				})
			}
		}
	}
}
