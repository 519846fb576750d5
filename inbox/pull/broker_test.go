package pull_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

// raw is a delivery as the broker has it.
type raw struct {
	id, key   string
	redriven  bool
	delivered bool
	message   inbox.Message
	at        time.Time // not to be delivered before
}

// broker keeps messages in memory until they are acknowledged.
type broker struct {
	mu     sync.Mutex
	queue  []*raw
	opened int
	fail   func(method string) error // what a session returns, if not nil
}

func (b *broker) send(_ context.Context, messages ...inbox.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		r := &raw{id: m.ID, key: m.Key, message: m}
		r.message.Source, r.message.ID, r.message.Key = "orders", "", ""
		b.queue = append(b.queue, r)
	}
	return nil
}

func (b *broker) left(context.Context) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue), nil
}

func (b *broker) open(context.Context) (pull.Session[*raw], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	if err := b.failure("open"); err != nil {
		return nil, err
	}
	return &session{broker: b, revoked: &atomic.Bool{}}, nil
}

func (b *broker) failure(method string) error {
	if b.fail == nil {
		return nil
	}
	return b.fail(method)
}

var errSession = errors.New("the session breaks")

type session struct {
	*broker
	revoked *atomic.Bool
}

// Receive looks for messages every 5 ms.
func (s *session) Receive(ctx context.Context, limit int, wait time.Duration) (received []*pull.Delivery[*raw], err error) {
	for end := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		if received, err = s.take(limit); len(received) > 0 || err != nil || ctx.Err() != nil || time.Now().After(end) {
			return received, err
		}
	}
}

func (s *session) take(limit int) (received []*pull.Delivery[*raw], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.queue {
		if r.delivered || len(received) == limit || time.Now().Before(r.at) {
			continue
		}
		r.delivered = true
		received = append(received, &pull.Delivery[*raw]{Message: r.message, Raw: r, Revoked: s.revoked})
	}
	return received, s.failure("Receive")
}

func (s *session) Settle(ctx context.Context, held []*pull.Delivery[*raw]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure("Settle"); err != nil {
		return err
	}
	for _, d := range held {
		switch outcome, settled := d.Outcome(); {
		case settled && outcome.State == inbox.Retry:
			d.Raw.delivered, d.Raw.at = false, outcome.RetryAt
		case settled:
			s.queue = slices.DeleteFunc(s.queue, func(r *raw) bool { return r == d.Raw })
		}
	}
	return ctx.Err()
}

// Close has the rest delivered again.
func (s *session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.queue {
		r.delivered = false
	}
}

// revoke revokes the deliveries so far.
func (s *session) revoke() {
	s.revoked.Store(true)
	s.revoked = &atomic.Bool{}
}
