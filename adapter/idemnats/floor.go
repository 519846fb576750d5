package idemnats

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// floor is what an ordered consumer stands on: it handles a message when all that comes before it in the stream is settled,
// or in its own hand. JetStream does not see to that: what a process had in hand when it died is delivered again after
// AckWait, behind all that is delivered meanwhile.
//
// The broker says how many messages are pending, and how far it has delivered. If as many of those are in this hand, no
// other hand has one.
type floor struct {
	since time.Time // something has no floor; zero if everything has
	asked time.Time
	info  *jetstream.ConsumerInfo
	until atomic.Int64 // others come first, in Unix nanoseconds
	ceded int          // how often in a row that was decided
}

// onFloor returns what may be handled.
func (r *run) onFloor(ctx context.Context) []*held {
	all := r.hand.All()
	f := &r.floor
	if len(sure(all)) == len(all) {
		f.since, f.info = time.Time{}, nil
		return all
	}
	now := time.Now()
	if f.since.IsZero() {
		f.since = now
	}
	if f.info == nil || now.Sub(f.asked) >= f.pause() {
		f.asked = now
		if info, err := r.source.Info(ctx); err == nil {
			f.info = info
			all = r.hand.All()
		}
	}
	if f.info != nil && delivered(all, f.info) >= f.info.NumAckPending {
		for _, h := range all {
			if h.Seq <= f.info.Delivered.Stream {
				h.Delivery.sure.Store(true)
			}
		}
		f.since, f.info, f.ceded = time.Time{}, nil, 0
	} else if now.Sub(f.since) > 2*r.ackWait { // another process waits for what is in this hand, as this one does for its
		r.giveBack()
		f.until.Store(now.Add(rand.N(concession(r.ackWait, f.ceded))).UnixNano())
		f.ceded++
		f.since, f.info = time.Time{}, nil
		return nil
	}
	return sure(all)
}

// lost says whether something waits for its floor.
func (f *floor) lost() bool { return !f.since.IsZero() }

// pause is how long to wait before the broker is asked again.
func (f *floor) pause() time.Duration {
	return min(max(time.Since(f.since)/4, 2*time.Millisecond), 200*time.Millisecond)
}

// longConcession is how long others come first at most, if AckWait is not longer.
const longConcession = 10 * time.Second

// concession is for how long others come first at most, after having been so often in vain: they have to fetch all of it
// meanwhile, which takes as long as it takes.
func concession(ackWait time.Duration, ceded int) time.Duration {
	return max(ackWait, min(ackWait<<min(ceded, 10), longConcession))
}

// yields says whether others are to have what was given back.
func (f *floor) yields(now time.Time) bool { return now.UnixNano() < f.until.Load() }

// delivered counts what the broker had delivered at the time of info.
func delivered(all []*held, info *jetstream.ConsumerInfo) (n int) {
	for _, h := range all {
		if h.Seq <= info.Delivered.Stream {
			n++
		}
	}
	return n
}

// sure returns what stands on the floor, but for what is behind something of its key that does not: what is delivered again
// while it is in hand has to find its floor again.
func sure(all []*held) []*held {
	var standing []*held
	floating := map[string]bool{}
	for _, h := range all {
		switch key := h.Message.Key; {
		case !h.Delivery.sure.Load():
			floating[key] = key != ""
		case !floating[key]:
			standing = append(standing, h)
		}
	}
	return standing
}
