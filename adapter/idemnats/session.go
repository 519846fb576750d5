package idemnats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

const (
	fetchWait = 500 * time.Millisecond // a stop waits for the last fetch

	minPause = 20 * time.Millisecond // after an error
	maxPause = 5 * time.Second
)

type delivery = pull.Delivery[jetstream.Msg]

// session holds a message from its fetch until it is acknowledged or released. Receive starts a
// fetch if none is in progress. So messages arrive, and are held, while handlers run.
type session struct {
	*Consumer
	ackWait      time.Duration
	stop         func()        // ends the goroutine that extends deadlines
	predecessors predecessors  // used by Receive alone
	resume       time.Time     // no fetch starts before: one failed, or others are to fetch what was released
	pause        time.Duration // after the next failure
	fetch        chan error    // receives the error of the fetch in progress; nil if there is none
	wake         chan struct{} // wakes Receive: a message was fetched, or the fetch has ended

	mu      sync.Mutex
	held    map[uint64]jetstream.Msg // the latest delivery of each message, by its sequence number
	waiting map[uint64]*delivery     // those of held that Receive has not returned yet
	revoked *atomic.Bool             // of the deliveries since the last release
}

func (c *Consumer) open(ctx context.Context) (pull.Session[jetstream.Msg], error) {
	config := c.source.CachedInfo().Config
	s := &session{
		Consumer: c, ackWait: config.AckWait, pause: minPause, wake: make(chan struct{}, 1), revoked: &atomic.Bool{},
	}
	for _, wait := range config.BackOff {
		s.ackWait = min(s.ackWait, wait)
	}
	s.release()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the last batch may outlast ctx
	var extending sync.WaitGroup
	extending.Go(func() { s.extend(ctx) })
	s.stop = func() {
		cancel()
		extending.Wait()
	}
	return s, nil
}

// Close implements pull.Session. It waits for the last fetch: a message that arrived later would be
// delivered again only after AckWait.
func (s *session) Close() {
	if s.fetch != nil {
		<-s.fetch
	}
	s.stop()
	s.release()
}

// release gives all messages back to the broker, which delivers them again at once.
func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range s.held {
		_ = msg.Nak() // if it is lost, the message is delivered again after AckWait
	}
	s.revoked.Store(true)
	s.held, s.waiting, s.revoked = map[uint64]jetstream.Msg{}, map[uint64]*delivery{}, &atomic.Bool{}
}

// extend extends the deadlines of what is held.
func (s *session) extend(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, s.ackWait/3)
		s.mu.Lock()
		for _, msg := range s.held {
			_ = msg.InProgress() // if it is lost, the message is delivered again
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
		case err := <-s.fetch:
			if err := s.fetched(ctx, err); err != nil {
				return nil, err
			}
		default:
		}
		s.start(ctx, limit)
		received, recheck := s.admit(ctx)
		left := time.Until(end)
		if len(received) > 0 || left <= 0 || ctx.Err() != nil {
			return received, nil
		}
		timer := time.NewTimer(min(left, recheck))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// start starts a fetch of up to limit messages, if none is in progress and there is room. In order,
// the predecessors of waiting messages have to be fetched, however many messages wait.
func (s *session) start(ctx context.Context, limit int) {
	s.mu.Lock()
	if !s.loop.Ordered {
		limit = min(limit, 4*s.loop.Batch-len(s.held))
	}
	s.mu.Unlock()
	if s.fetch != nil || limit <= 0 || ctx.Err() != nil || time.Now().Before(s.resume) {
		return
	}
	opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(fetchWait)}
	if s.group != "" {
		opts = append(opts, jetstream.FetchPriorityGroup(s.group))
	}
	ended := make(chan error, 1)
	s.fetch = ended
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

// fetched ends a fetch. It returns an error if the connection is closed for good.
func (s *session) fetched(ctx context.Context, err error) error {
	s.fetch = nil
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", pull.ErrPermanent, err)
	case err == nil || ctx.Err() != nil:
		s.pause = minPause
		return nil
	}
	s.loop.Logger.Warn("idemnats: cannot fetch", "consumer", s.loop.Name, "error", err)
	s.resume = time.Now().Add(s.pause)
	s.pause = min(2*s.pause, maxPause)
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
	if s.held[seq] = msg; again { // its deadline has passed, and it still waits here
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

// Settle implements pull.Session. A dead letter is terminated. In order, Settle waits until the
// broker has the last acknowledgement, because admit goes by what the broker counts as pending.
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

// remove removes a message from what is held, and returns its latest delivery.
func (s *session) remove(d *delivery) jetstream.Msg {
	meta, _ := d.Raw.Metadata() // put has read it before
	s.mu.Lock()
	defer s.mu.Unlock()
	msg := s.held[meta.Sequence.Stream]
	delete(s.held, meta.Sequence.Stream)
	return msg
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
