package idemnats

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// predecessors is used to check whether each earlier message of the stream is settled or is held by
// this process. With Ordered, a message is handled only if the check succeeds. Otherwise a dead
// process may have had an earlier message, which JetStream redelivers only after AckWait, behind
// later messages.
//
// The broker reports the number of delivered messages that are not acknowledged, and the sequence
// number of the last delivered message. If this process holds as many messages up to that sequence
// number, no other process has one of them.
type predecessors struct {
	since time.Time // when the waiting messages began to wait; zero if no message waits
	asked time.Time
	info  *jetstream.ConsumerInfo
}

// longestYield is the longest time for which a process fetches nothing after it has released its
// messages to another process.
const longestYield = 2 * time.Second

// admit returns the messages that may be handled, in the order of the stream. With Ordered, these
// are the messages whose predecessors are settled, or held by this process. recheck is how long the
// caller may wait before it calls admit again.
func (s *session) admit(ctx context.Context) (admitted []*delivery, recheck time.Duration) {
	p, now := &s.predecessors, time.Now()
	s.mu.Lock()
	waiting := len(s.waiting)
	s.mu.Unlock()
	switch {
	case waiting == 0:
		p.since, p.info = time.Time{}, nil
		return nil, cmp.Or(max(time.Until(s.nextFetch), 0), fetchWait)
	case !s.loop.Ordered:
		return s.takeUpTo(math.MaxUint64), 0
	case p.since.IsZero():
		p.since = now
	}
	if p.info == nil || now.Sub(p.asked) >= p.pause() {
		p.asked = now
		if info, err := s.source.Info(ctx); err == nil {
			p.info = info
		}
	}
	if p.info != nil && s.delivered(p.info.Delivered.Stream) >= p.info.NumAckPending {
		last := p.info.Delivered.Stream
		p.since, p.info = time.Time{}, nil
		return s.takeUpTo(last), 0
	}
	if now.Sub(p.since) > 2*s.ackWait { // this process and another one wait for each other's messages
		s.release()
		s.nextFetch = now.Add(rand.N(longestYield)) // so that the other process can fetch all these messages
		p.since, p.info = time.Time{}, nil
	}
	return nil, p.pause()
}

// delivered returns the number of held messages with sequence numbers up to last.
func (s *session) delivered(last uint64) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range s.held {
		if seq <= last {
			n++
		}
	}
	return n
}

// takeUpTo removes the messages with sequence numbers up to last from s.waiting, and returns them
// in order.
func (s *session) takeUpTo(last uint64) (taken []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(s.waiting)) {
		if seq <= last {
			taken = append(taken, s.waiting[seq])
			delete(s.waiting, seq)
		}
	}
	return taken
}

// pause returns the time between two requests to the broker for its counts.
func (p *predecessors) pause() time.Duration {
	return min(max(time.Since(p.since)/4, 2*time.Millisecond), 200*time.Millisecond)
}
