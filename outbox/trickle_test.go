package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// With each of the others comes at least one that is bad and has a key of its own, so that the search never comes to its end: the first message of
// a busy key is older than all of these. With the pauses that are usual a relay that only ever tries what is new stays behind for good.
func TestBadMessagesThatKeepComingDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ front, bad, keys int }{
		"one for each behind many": {front: 300, bad: 1, keys: 7},
		"four for each":            {bad: 4, keys: 7},
		"four for each of one key": {bad: 4, keys: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			b := &broker{}
			var inFront []outbox.Message
			for i := range c.front {
				inFront = append(inFront, message(fmt.Sprint("in front ", i), "bad"))
			}
			o.add(inFront...)
			calls := &counted{Publisher: b.unless("bad")}
			o.relay(calls, outbox.RelayConfig{})
			bad, others := 0, 0
			add := func(other bool) {
				var some []outbox.Message
				for range c.bad {
					bad++
					some = append(some, message(fmt.Sprint("bad ", bad), "bad"))
				}
				if other {
					others++
					some = append(some, message(fmt.Sprint("key ", others%c.keys), fmt.Sprint(others)))
				}
				o.add(some...)
				calls.pace(20 * time.Millisecond)
			}
			for range 200 {
				add(true)
			}
			left := b.number()
			more := 0
			for ; b.number() < others; more++ { // and they go on coming
				if more == 500 {
					t.Fatalf("%d of %d have left when %d more that are bad have come", b.number(), others, c.bad*more)
				}
				add(false)
			}
			t.Logf("%d of %d had left, the others when %d more that are bad had come, in %d calls", left, others, c.bad*more, calls.n.Load())
		})
	}
}

// As long as others keep coming of which nothing is known, there is no end of the search.
func TestMessageThatWasFoundDiesInTheMidstOfASearch(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	var dead atomic.Int64
	config := swift()
	config.MaxAttempts, config.OnDead = 3, func(outbox.DeadLetter) { dead.Add(1) }
	calls := &counted{Publisher: b.unless("bad")}
	o.relay(calls, config)
	for i := 0; dead.Load() < 50; i++ {
		if i == 2000 {
			t.Fatalf("%d are dead", dead.Load())
		}
		o.add(message(fmt.Sprint("bad ", i), "bad"), message(fmt.Sprint("and ", i), "bad"), message("key", fmt.Sprint(i)))
		calls.pace(10 * time.Millisecond)
	}
}

// counted counts the calls of a Publisher.
type counted struct {
	outbox.Publisher
	n atomic.Int64
}

func (c *counted) Publish(ctx context.Context, messages []outbox.Message) error {
	c.n.Add(1)
	return c.Publisher.Publish(ctx, messages)
}

// pace waits between messages that come one after the other: a moment, and for as many calls as a relay makes in that if nothing holds up the
// machine. A relay that has nothing to do, because all that is left has a pause, makes none.
func (c *counted) pace(moment time.Duration) {
	before := c.n.Load()
	time.Sleep(moment)
	for end := time.Now().Add(25 * moment); c.n.Load()-before < 4 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
