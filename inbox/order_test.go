package inbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
)

// keyed returns messages whose keys are the first letters of their ids.
func keyed(ids ...string) []inbox.Message {
	var ms []inbox.Message
	for _, id := range ids {
		m := message(id)
		m.Key = id[:1]
		ms = append(ms, m)
	}
	return ms
}

var ordered = []inbox.Option{inbox.WithOrder(), inbox.WithMaxAttempts(3), inbox.WithBackoff(time.Hour, time.Hour)}

func TestMessageWaitsBehindAFailedOneOfItsKeyInTheSameBatch(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	outcomes := b.batch(keyed("a1", "b1", "a2", "b2", "a3", "c1"), b.poisoned("a1"), ordered...)
	b.wantStates("RDRDRD", outcomes)
	b.wantEntries("b1", "b2", "c1")
	if o := outcomes[4]; !errors.Is(o.Err, inbox.ErrBehind) || !o.RetryAt.Equal(outcomes[0].RetryAt) {
		t.Errorf("%+v", o)
	}
	if b.attempts("a2") != 0 || b.attempts("a3") != 0 {
		t.Error("waiting counts as an attempt")
	}
}

func TestMessageWaitsBehindAFailedOneOfItsKeyOfAnEarlierDelivery(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.wantStates("R", b.batch(keyed("a1"), b.poisoned("a1"), ordered...))
	b.wantStates("RDR", b.batch(keyed("a2", "b1", "a3"), b.poisoned(), ordered...))
	b.due()
	b.wantStates("R", b.batch(keyed("a2"), b.poisoned(), ordered...)) // a1 is due, and not there
	b.wantStates("DDD", b.batch(keyed("a1", "a2", "a3"), b.poisoned(), ordered...))
	b.wantEntries("b1", "a1", "a2", "a3")
}

// A broker delivers again what was handled, such as a1, and then what comes after that.
func TestDuplicateNeedNotWaitForWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.wantStates("DR", b.batch(keyed("a1", "a2"), b.poisoned("a2"), ordered...))
	b.wantStates("d", b.batch(keyed("a1"), b.poisoned(), ordered...))
	b.wantStates("dR", b.batch(keyed("a1", "a2"), b.poisoned(), ordered...))
	b.due()
	b.wantStates("dD", b.batch(keyed("a1", "a2"), b.poisoned(), ordered...))
	b.wantEntries("a1", "a2")
}

func TestMessageOvertakesNoneThatIsNotDue(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.batch(keyed("a1"), b.poisoned("a1"), ordered...)
	b.wantStates("RR", b.batch(keyed("a1", "a2"), b.poisoned(), ordered...))
	b.wantEntries()
}

// What is before it was undone together with its failure, and may come alone the next time.
func TestFailureHoldsNobodyBackThatComesBeforeIt(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms, runs := keyed("a1", "a2"), 0
	b.wantStates("RR", b.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "a2" {
			return errors.New("it fails")
		}
		if runs++; runs > 1 {
			return &pgconn.PgError{Code: "40001"} // no message's fault
		}
		return b.enter(tx, m)
	}, append(slices.Clone(ordered), inbox.WithRetries(0))...))
	b.due()
	b.wantStates("D", b.batch(ms[:1], b.enter, ordered...))
	b.wantStates("dD", b.batch(ms, b.enter, ordered...))
	b.wantEntries("a1", "a2")
}

func TestDeadLetterHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for range 2 {
		b.wantStates("RR", b.batch(keyed("a1", "a2"), b.poisoned("a1"), ordered...))
		b.due()
	}
	b.wantStates("XD", b.batch(keyed("a1", "a2"), b.poisoned("a1"), ordered...))
	b.wantEntries("a2")
}

func TestWithoutOrderAndWithoutAKeyNobodyWaits(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.wantStates("RDRD", append(b.batch(keyed("a1", "a2"), b.poisoned("a1")), b.batch(messages("m", 2), b.poisoned("m-0000"), ordered...)...))
}

// A message that another process has in hand may yet be rolled back.
func TestMessageWaitsBehindOneOfItsKeyThatIsElsewhere(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	k := b.keep("a1", nil)
	opts := append([]inbox.Option{inbox.WithLimits(20*time.Millisecond, limit, limit)}, ordered...)
	b.wantStates("RDR", b.batch(keyed("a1", "b1", "a2"), b.enter, opts...))
	k.release()
	await(t, "the other delivery", k.done)
	b.wantStates("ddD", b.batch(keyed("a1", "b1", "a2"), b.enter, opts...))
	b.wantEntries("a1", "b1", "a2")
}

// Others are trying what was delivered here again. They have just failed with a1, which was about to be taken: its attempt goes on without
// it, and a2, whose attempt was announced, comes in a later one.
func TestMessageWaitsBehindOneOfItsKeyThatOthersHaveFailedWithMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		b1   func(b *books, tx pgx.Tx, m inbox.Message) error
		bulk bool
		want string
	}{
		"one behind it fails":       {func(b *books, tx pgx.Tx, m inbox.Message) error { return errPoison }, false, "RRDR"},
		"one behind it ends the tx": {endsTransaction, false, "RXDR"},
		"one behind it, in a Bulk":  {func(b *books, tx pgx.Tx, m inbox.Message) error { return errPoison }, true, "RRDR"},
		"all behind it are handled": {(*books).enter, false, "RDDR"},
		"all of a Bulk are handled": {(*books).enter, true, "RDDR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			ms := keyed("a1", "b1", "c1", "a2")
			p.wantStates("R", p.batch(ms[:1], p.poisoned("a1"), ordered...))
			p.due()
			p.exec(`insert into idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, retry_at, key)
				values ($1, $2, 'a2', sha256($3), 'failing', now(), 'infinity', 0, now(), 'a')`, consumer, ms[3].Source, ms[3].Payload)
			trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("ResumeMessages")), pgproxy.Freeze)
			each := func(tx pgx.Tx, m inbox.Message) error {
				if m.ID == "b1" {
					return c.b1(p.books, tx, m)
				}
				return p.enter(tx, m)
			}
			answers := make(chan []inbox.Outcome, 1)
			go func() {
				var outcomes []inbox.Outcome
				var err error
				if c.bulk {
					outcomes, err = inbox.Bulk(context.Background(), p.via, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
						for _, m := range ms {
							if err := each(tx, m); err != nil {
								return err
							}
						}
						return nil
					}, ordered...)
				} else {
					outcomes, err = inbox.Batch(context.Background(), p.via, consumer, ms, each, ordered...)
				}
				if err != nil {
					t.Error(err)
				}
				answers <- outcomes
			}()
			frozen := await(t, "the attempt", trap.Fired())
			p.exec(`update idem.inbox set attempts = 2, retry_at = clock_timestamp() + '1 hour' where id = 'a1'`)
			frozen.Conn.Resume()
			p.wantStates(c.want, await(t, "the outcomes", answers))
			if n := p.count(`select count(*) from books where id like 'a%'`); n != 0 {
				t.Errorf("%d effects of the key", n)
			}
		})
	}
}

func endsTransaction(_ *books, tx pgx.Tx, _ inbox.Message) error {
	_, err := tx.Exec(context.Background(), "commit")
	return err
}

// What has the id of another message is handled after that, and whatever is behind it in its key after both.
func TestMessageWaitsBehindOneOfItsKeyThatHasTheIDOfAnother(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := keyed("b0", "b1", "b1", "a2")
	ms[2].Key, ms[2].Payload = "a", []byte("another one")
	b.wantStates("RRDD", b.batch(ms, b.poisoned("b0"), ordered...))
	b.wantEntries("b1", "a2")
}

func TestBulkFindsItsCulpritsByHalving(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	var sizes []int
	fn := func(tx pgx.Tx, ms []inbox.Message) error {
		sizes = append(sizes, len(ms))
		if err := b.enterAll(tx, ms); err != nil {
			return err
		}
		for _, m := range ms {
			if m.ID == "m-0005" || m.ID == "m-0011" {
				return errPoison
			}
		}
		return nil
	}
	later := inbox.WithBackoff(time.Hour, time.Hour)
	outcomes, err := inbox.Bulk(t.Context(), b.pool, consumer, messages("m", 16), fn, later)
	if err != nil {
		t.Fatal(err)
	}
	b.wantStates("DDDDDRDDDDDRDDDD", outcomes)
	b.wantOnce(14)
	if b.attempts("m-0005") != 1 || b.attempts("m-0011") != 1 {
		t.Error("the culprits are not counted once")
	}
	outcomes, err = inbox.Bulk(t.Context(), b.pool, consumer, messages("m", 18), func(tx pgx.Tx, ms []inbox.Message) error {
		if len(ms) != 2 {
			t.Errorf("the handler is given %d messages", len(ms))
		}
		return b.enterAll(tx, ms)
	}, later)
	if err != nil {
		t.Fatal(err)
	}
	b.wantStates("dddddRdddddRddddDD", outcomes)
}

func TestMessageThatIsThereSeveralTimesIsHandledOnce(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := keyed("a", "b", "a", "c", "b", "a")
	b.wantStates("DDdDdd", b.batch(ms, b.enter))
	b.wantOnce(3)
	other := message("d")
	other.Payload = []byte("another payload")
	outcomes := b.batch([]inbox.Message{message("d"), other, message("d"), other}, b.enter)
	b.wantStates("DXdX", outcomes)
	if !errors.Is(outcomes[1].Err, inbox.ErrMismatch) {
		t.Errorf("%+v", outcomes[1])
	}
	b.wantStates("RR", b.batch([]inbox.Message{message("e"), message("e")}, b.poisoned("e")))
	if n := b.attempts("e"); n != 1 {
		t.Errorf("%d attempts are on record", n)
	}
	b.wantOnce(4)
}
