package idemamqp

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
)

var errEnded = errors.New("idemamqp: the broker delivers no more")

// delivery is a message that is not acknowledged.
type delivery struct {
	amqp.Delivery
	message inbox.Message
	due     time.Time
}

// session is what is done over one channel. A message whose attempt has failed waits here until the next one is due: given back
// to the queue, it would come again at once, in front of all others, and be counted as delivered once more.
type session struct {
	*Consumer
	channel *amqp.Channel
	arrived <-chan amqp.Delivery
	unacked []*delivery   // in the order in which they were delivered
	rest    time.Duration // after the next batch that the database does not take
}

func (s *session) run(ctx context.Context) error {
	for {
		batch, err := s.next(ctx)
		if err != nil {
			return err
		}
		outcomes, stopped := s.handleBatch(ctx, batch)
		if len(outcomes) != len(batch) {
			return misuse{stopped}
		}
		if err := s.settle(ctx, batch, outcomes); err != nil {
			return err
		}
		switch {
		case stopped == nil:
			s.rest = minPause
		case ctx.Err() == nil:
			s.config.Logger.WarnContext(ctx, "idemamqp: cannot handle messages", "consumer", s.name, "queue", s.queue, "error", stopped)
			sleep(ctx, s.rest)
			s.rest = min(2*s.rest, maxPause)
		}
	}
}

// next waits until messages are due, and returns them in the order in which they were delivered.
func (s *session) next(ctx context.Context) ([]*delivery, error) {
	for {
		for len(s.arrived) > 0 {
			if err := s.admit(<-s.arrived, true); err != nil {
				return nil, err
			}
		}
		batch, wait := s.ready(time.Now())
		if len(batch) > 0 {
			return batch, nil
		}
		timer := time.NewTimer(wait)
		select {
		case d, ok := <-s.arrived:
			if err := s.admit(d, ok); err != nil {
				return nil, err
			}
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

func (s *session) admit(d amqp.Delivery, ok bool) error {
	if !ok {
		return errEnded
	}
	id, key := inbox.Identify(s.config.Logger, "idemamqp: ConsumerConfig.ID or Key", func() string { return s.config.ID(d) }, func() string { return s.config.Key(d) })
	s.unacked = append(s.unacked, &delivery{Delivery: d, message: inbox.Message{
		Source: s.queue, ID: id, Key: key, Type: d.Type, Headers: ownHeaders(d), Payload: d.Body,
		Deliveries: deliveries(d),
	}})
	return nil
}

// ready returns a batch of what is due, or how long it takes until something is. In order, nothing is due behind a message of its
// key that is not.
func (s *session) ready(now time.Time) (batch []*delivery, wait time.Duration) {
	wait = time.Hour
	waits := map[string]bool{}
	for _, d := range s.unacked {
		key := d.message.Key
		switch left := d.due.Sub(now); {
		case s.config.Ordered && key != "" && waits[key]:
		case left > 0:
			wait = min(wait, left)
			waits[key] = true
		default:
			if batch = append(batch, d); len(batch) == s.config.Batch {
				return batch, 0
			}
		}
	}
	return batch, wait
}

func (s *session) handleBatch(ctx context.Context, batch []*delivery) ([]inbox.Outcome, error) {
	messages, delivered := make([]inbox.Message, len(batch)), make(map[string]amqp.Delivery, len(batch))
	for i, d := range batch {
		messages[i] = d.message
		if _, twice := delivered[d.message.ID]; !twice { // the first one is handled
			d.Acknowledger = nil // it is not theirs to acknowledge
			delivered[d.message.ID] = d.Delivery
		}
	}
	return inbox.Batch(ctx, s.pool, s.name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return s.handle(tx, m, delivered[m.ID])
	}, s.config.Options...)
}

// settle acknowledges what is committed, as an effect, a duplicate or a dead letter. The rest is handled again when it is due.
func (s *session) settle(ctx context.Context, batch []*delivery, outcomes []inbox.Outcome) error {
	settled := map[*delivery]bool{}
	for i, d := range batch {
		out := outcomes[i]
		settled[d] = out.State != inbox.Retry
		d.due = out.RetryAt
		if out.State == inbox.Dead && !errors.Is(out.Err, inbox.ErrDead) {
			s.config.Logger.ErrorContext(ctx, "idemamqp: a message is a dead letter", "consumer", s.name, "queue", s.queue, "error", out.Err)
		}
	}
	// One frame acknowledges all that was delivered up to here. What is behind a message that waits has one of its own.
	prefix := 0
	for prefix < len(s.unacked) && settled[s.unacked[prefix]] {
		prefix++
	}
	if prefix > 0 {
		if err := s.channel.Ack(s.unacked[prefix-1].DeliveryTag, true); err != nil {
			return err
		}
	}
	waiting := s.unacked[:0]
	for i, d := range s.unacked {
		switch {
		case i < prefix:
		case settled[d]:
			if err := s.channel.Ack(d.DeliveryTag, false); err != nil {
				return err
			}
		default:
			waiting = append(waiting, d)
		}
	}
	clear(s.unacked[len(waiting):])
	s.unacked = waiting
	return nil
}
