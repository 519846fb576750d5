package outbox_test

import (
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
			o.relay(b.unless("bad"), outbox.RelayConfig{})
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
				time.Sleep(20 * time.Millisecond) // they come one after the other, whatever the relay does
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
			t.Logf("%d of %d had left, the others when %d more that are bad had come", left, others, c.bad*more)
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
	o.relay(b.unless("bad"), config)
	for i := 0; dead.Load() < 50; i++ {
		if i == 2000 {
			t.Fatalf("%d are dead", dead.Load())
		}
		o.add(message(fmt.Sprint("bad ", i), "bad"), message(fmt.Sprint("and ", i), "bad"), message("key", fmt.Sprint(i)))
		time.Sleep(10 * time.Millisecond) // they come one after the other, whatever the relay does
	}
}
