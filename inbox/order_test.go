package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
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

var ordered = []inbox.Option{inbox.WithOrder(), inbox.WithMaxAttempts(3), inbox.WithPause(time.Hour, time.Hour)}

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

func TestMessageOvertakesNoneThatIsNotDue(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.batch(keyed("a1"), b.poisoned("a1"), ordered...)
	b.wantStates("RR", b.batch(keyed("a1", "a2"), b.poisoned(), ordered...))
	b.wantEntries()
}

// Attempts at messages that were delivered before are announced, many by one statement.
func TestMessagesThatWereAnnouncedTogetherWaitForEachOtherInTheirOrder(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	again := keyed("a3", "a1", "a2")
	for i := range again {
		again[i].Deliveries = 2
	}
	opts := []inbox.Option{inbox.WithOrder(), inbox.WithPause(time.Millisecond, time.Millisecond)}
	stopped := func(pgx.Tx, inbox.Message) error { return context.Canceled } // nobody's fault
	if _, err := inbox.Batch(t.Context(), b.pool, consumer, again, stopped, opts...); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.due()
	b.wantStates("R", b.batch(again[1:2], b.poisoned(), opts...))
	b.wantStates("D", b.batch(again[:1], b.poisoned(), opts...))
	b.wantStates("DD", b.batch(again[1:], b.poisoned(), opts...))
	b.wantEntries("a3", "a1", "a2")
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

// A message that somebody else has in hand may yet be rolled back.
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
	outcomes, err := inbox.Bulk(t.Context(), b.pool, consumer, messages("m", 16), fn)
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
	})
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
