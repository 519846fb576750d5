package idemnats

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// predecessors are what comes before a message in the stream: an ordered consumer handles it when all of that is settled, or in
// its own hand. JetStream does not do that: what a process had in hand when it died is delivered again after AckWait, behind
// all that is delivered meanwhile.
//
// The broker says how many messages are pending, and how far it has delivered. If as many of those are in this hand, no
// other hand has one.
type predecessors struct {
	since time.Time // when something began to wait for what comes before it; zero if nothing does
	asked time.Time
	info  *jetstream.ConsumerInfo
	until atomic.Int64 // others come first, in Unix nanoseconds
	ceded int          // how often in a row that was decided
}

// inOrder returns what may be handled.
func (r *run) inOrder(ctx context.Context) []*held {
	all := r.hand.All()
	f := &r.predecessors
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

// lost says whether something waits for its predecessors.
func (f *predecessors) lost() bool { return !f.since.IsZero() }

// pause is how long to wait before the broker is asked again.
func (f *predecessors) pause() time.Duration {
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
func (f *predecessors) yields(now time.Time) bool { return now.UnixNano() < f.until.Load() }

// delivered counts what the broker had delivered at the time of info.
func delivered(all []*held, info *jetstream.ConsumerInfo) (n int) {
	for _, h := range all {
		if h.Seq <= info.Delivered.Stream {
			n++
		}
	}
	return n
}

// sure returns what has no predecessor left, but for what is behind something of its key that does not: what is delivered again
// while it is in hand has to find out about its predecessors again.
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
