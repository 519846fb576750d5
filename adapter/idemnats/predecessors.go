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

// predecessors finds out whether all earlier messages of the stream are settled or held by this
// process. With Ordered, a message is handled only then: JetStream redelivers the messages of a
// dead process after AckWait, behind the messages that it delivers meanwhile.
//
// The broker reports how many messages are pending, and the sequence number of the last message
// that it has delivered. If this process holds that many messages up to that number, no other
// process holds a message.
type predecessors struct {
	since time.Time // when messages began to wait; zero if none does
	asked time.Time
	info  *jetstream.ConsumerInfo
}

// longestYield is the longest time for which a process fetches nothing after a release.
const longestYield = 2 * time.Second

// admit returns the messages that may be handled, in the order of the stream. With Ordered, these
// are the messages whose predecessors are settled or held. recheck is the time after which admit
// must be called again.
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
	if now.Sub(p.since) > 2*s.ackWait { // two processes wait for what the other one holds
		s.release()
		s.nextFetch = now.Add(rand.N(longestYield)) // so that the other one can fetch all of it
		p.since, p.info = time.Time{}, nil
	}
	return nil, p.pause()
}

// delivered returns how many messages the session holds whose sequence number is at most last.
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

// takeUpTo removes the messages up to a sequence number from waiting.
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

// pause is how long to wait before the broker is asked again.
func (p *predecessors) pause() time.Duration {
	return min(max(time.Since(p.since)/4, 2*time.Millisecond), 200*time.Millisecond)
}
