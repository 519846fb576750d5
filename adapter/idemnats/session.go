package idemnats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

const (
	fetchWait = 500 * time.Millisecond // short, because Close waits for the fetch in progress

	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second
)

type delivery = pull.Delivery[jetstream.Msg]

// session is a pull.Session. It keeps each fetched message, and extends the deadline of the
// message, until the message is acknowledged or released. Fetches run in a goroutine that Receive
// starts, so messages also arrive while handlers run.
type session struct {
	*Consumer
	ackWait       time.Duration
	stopExtending func()
	fetchDone     chan error    // receives the error of the fetch in progress; the channel is nil if no fetch is in progress
	wake          chan struct{} // wakes Receive when a message was fetched or the fetch has ended

	// Only Receive and the functions that it calls use the next three fields.
	predecessors predecessors
	nextFetch    time.Time     // the earliest start of a fetch, set after a failed fetch or a release
	backoff      time.Duration // the wait after the next failed fetch

	mu      sync.Mutex
	held    map[uint64]jetstream.Msg // the latest delivery of each fetched message that is not settled, by sequence number
	waiting map[uint64]*delivery     // the held messages that Receive has not returned yet, by sequence number
	revoked *atomic.Bool             // the field Revoked of all deliveries since the last release, which share this flag
}

func (c *Consumer) open(ctx context.Context) (pull.Session[jetstream.Msg], error) {
	config := c.source.CachedInfo().Config
	s := &session{
		Consumer: c, ackWait: config.AckWait, backoff: minBackoff, wake: make(chan struct{}, 1), revoked: &atomic.Bool{},
	}
	for _, wait := range config.BackOff {
		s.ackWait = min(s.ackWait, wait)
	}
	s.release()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // deadlines are extended until Close, because the last batch may commit after the end of ctx
	var extending sync.WaitGroup
	extending.Go(func() { s.extend(ctx) })
	s.stopExtending = func() {
		cancel()
		extending.Wait()
	}
	return s, nil
}

// Close implements pull.Session. It waits for the fetch in progress before it releases the
// messages. JetStream would redeliver a message that arrived after the release only after AckWait.
func (s *session) Close() {
	if s.fetchDone != nil {
		<-s.fetchDone
	}
	s.stopExtending()
	s.release()
}

// release returns all held messages to the broker, which delivers them again at once, in their
// order. It revokes their deliveries.
func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(s.held)) {
		_ = s.held[seq].Nak() // if the Nak is lost, the broker delivers the message again after AckWait
	}
	s.revoked.Store(true)
	s.held, s.waiting, s.revoked = map[uint64]jetstream.Msg{}, map[uint64]*delivery{}, &atomic.Bool{}
}

// extend extends the deadlines of the held messages again and again until ctx is done.
func (s *session) extend(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, s.ackWait/3)
		s.mu.Lock()
		for _, msg := range s.held {
			_ = msg.InProgress() // if the signal is lost, the broker delivers the message again
		}
		s.mu.Unlock()
	}
}

// Receive implements pull.Session.
func (s *session) Receive(ctx context.Context, limit int, wait time.Duration) ([]*delivery, error) {
	if limit == 0 {
		sleep(ctx, wait)
		return nil, nil
	}
	for end := time.Now().Add(wait); ; {
		select {
		case err := <-s.fetchDone:
			if err := s.fetchEnded(ctx, err); err != nil {
				return nil, err
			}
		default:
		}
		s.startFetch(ctx, limit)
		received, recheck := s.admit(ctx)
		left := time.Until(end)
		if len(received) > 0 || left <= 0 || ctx.Err() != nil {
			return received, nil
		}
		select {
		case <-s.wake:
		case <-time.After(min(left, recheck)):
		case <-ctx.Done():
		}
	}
}

// startFetch starts a fetch of up to limit messages if no fetch is in progress. Without Ordered, it
// starts none while the session holds four batches. With Ordered, the session may hold any number,
// because the predecessor of a waiting message may not be fetched yet.
func (s *session) startFetch(ctx context.Context, limit int) {
	s.mu.Lock()
	if !s.loop.Ordered {
		limit = min(limit, 4*s.loop.Batch-len(s.held))
	}
	s.mu.Unlock()
	if s.fetchDone != nil || limit <= 0 || ctx.Err() != nil || time.Now().Before(s.nextFetch) {
		return
	}
	opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(fetchWait)}
	if s.group != "" {
		opts = append(opts, jetstream.FetchPriorityGroup(s.group))
	}
	ended := make(chan error, 1)
	s.fetchDone = ended
	go func() {
		batch, err := s.source.Fetch(limit, opts...)
		if err == nil {
			for msg := range batch.Messages() {
				s.put(msg)
			}
			err = batch.Error()
		}
		ended <- err
		s.notify()
	}()
}

// fetchEnded handles the end of a fetch: after an error, the next fetch waits for the backoff. It
// returns an error if the connection is closed for good.
func (s *session) fetchEnded(ctx context.Context, err error) error {
	s.fetchDone = nil
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", pull.ErrPermanent, err)
	case err == nil || ctx.Err() != nil:
		s.backoff = minBackoff
		return nil
	}
	s.loop.Logger.Warn("idemnats: cannot fetch; trying again", "consumer", s.loop.Name, "error", err)
	s.nextFetch = time.Now().Add(s.backoff)
	s.backoff = min(2*s.backoff, maxBackoff)
	return nil
}

func (s *session) put(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		s.loop.Logger.Error("idemnats: cannot read the metadata of a message", "consumer", s.loop.Name, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := meta.Sequence.Stream
	_, again := s.held[seq]
	if s.held[seq] = msg; again { // redelivered after its deadline: the message is handled once, and the new delivery is acknowledged
		return
	}
	s.waiting[seq] = &delivery{Raw: msg, Revoked: s.revoked, Message: inbox.Message{
		Source: meta.Stream, Type: decode(msg.Headers(), HeaderType), Headers: ownHeaders(msg.Headers()),
		Payload: msg.Data(), Deliveries: int(meta.NumDelivered),
	}}
	s.notify()
}

func (s *session) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Settle implements pull.Session. The delivery of a dead letter is terminated. With Ordered, Settle
// waits until the broker has confirmed the last acknowledgement, because admit reads the broker's
// count of unacknowledged messages.
func (s *session) Settle(ctx context.Context, held []*delivery) error {
	var handled []jetstream.Msg
	for _, d := range held {
		outcome, settled := d.Outcome()
		if !settled {
			continue
		}
		switch msg := s.remove(d); outcome.State {
		case inbox.Retry:
			_ = msg.NakWithDelay(time.Until(outcome.RetryAt))
		case inbox.Dead:
			_ = msg.Term()
		default:
			handled = append(handled, msg)
		}
	}
	for i, msg := range handled {
		if !s.loop.Ordered || i < len(handled)-1 {
			_ = msg.Ack()
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		_ = msg.DoubleAck(ctx)
		cancel()
	}
	return nil
}

// remove removes the message of d from s.held, and returns the latest delivery of the message.
func (s *session) remove(d *delivery) jetstream.Msg {
	meta, _ := d.Raw.Metadata() // put has read the same metadata without an error
	s.mu.Lock()
	defer s.mu.Unlock()
	msg := s.held[meta.Sequence.Stream]
	delete(s.held, meta.Sequence.Stream)
	return msg
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
