package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A key of which messages leave is in front of a thousand bad ones of other keys: a call in three at least is about it, whichever of the others fail.
func TestKeyOfWhichMessagesLeaveHasACallInThree(t *testing.T) {
	t.Parallel()
	const good, bad = 10, 1000
	calls, left, since := 0, 0, 0
	c := newCaller(t, func(_ context.Context, messages []Message) error {
		calls++
		since++
		if messages[0].Type == "bad" {
			return errors.New("no word of which")
		}
		if left > 0 && since > 3 {
			t.Errorf("%d calls were made before the next message of the key", since)
		}
		left += len(messages)
		since = 0
		return nil
	})
	busy := store.HeldKey{Topic: "t", Key: "busy"}
	c.trial.on, c.trial.known = true, map[store.HeldKey]bool{busy: true}
	b := &batch{}
	for seq := range good + bad {
		m := store.Queued{Seq: int64(seq + 1), ID: fmt.Sprint(seq), Topic: "t", Key: fmt.Sprint("bad ", seq), Type: "bad"}
		if seq < good {
			m.Key, m.Type = busy.Key, "good"
		}
		b.messages = append(b.messages, m)
	}
	r := &round{batch: b, caller: c, stuck: map[store.HeldKey]bool{}, later: map[store.HeldKey]bool{}, dealt: make([]bool, len(b.messages)), did: &outcome{}}
	s := searchOf(r)
	for left < good && calls < bad {
		line, part := s.pick()
		s.publish(t.Context(), line, part)
	}
	if left != good {
		t.Errorf("%d of %d have left in %d calls", left, good, calls)
	}
}

// Whether it is bad or its destination is away, to try it again at once says nothing: nothing else was published meanwhile.
func TestMessageThatFailsAloneIsTriedOnceBetweenTwoPauses(t *testing.T) {
	t.Parallel()
	for _, number := range []int{1, 3} {
		calls := 0
		c := newCaller(t, func(context.Context, []Message) error {
			calls++
			return errors.New("no word of which")
		})
		c.answeredAt, c.trial.on = time.Now(), true
		b := &batch{}
		for i := range number {
			b.messages = append(b.messages, store.Queued{Seq: int64(i + 1), ID: fmt.Sprint(i), Topic: "t", Key: fmt.Sprint(i)})
		}
		for round := range 3 {
			o := b.publish(t.Context(), c)
			if o.err == nil || !o.isLeft {
				t.Errorf("%+v", o)
			}
			if want := number * (round + 1); calls != want {
				t.Errorf("%d messages, round %d: %d calls", number, round, calls)
			}
		}
	}
}

// newCaller is one that works, with the configuration of every day.
func newCaller(t *testing.T, publisher PublisherFunc) *caller {
	t.Helper()
	config := &RelayConfig{}
	if err := config.set(); err != nil {
		t.Fatal(err)
	}
	c := &caller{publisher: publisher, config: config, ownership: &ownership{}, abort: t.Context(), size: config.BatchSize}
	c.ownership.seen.Store(time.Now().UnixNano())
	return c
}
