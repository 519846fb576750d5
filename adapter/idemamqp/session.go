package idemamqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

var errUnsubscribed = errors.New("the broker ended the subscription")

type delivery = pull.Delivery[amqp.Delivery]

// session is a connection with one channel. A message that waits for another attempt stays
// unacknowledged. If the session returned the message, the broker would deliver it again at once,
// before all other messages, and count the delivery.
type session struct {
	*Consumer
	conn    *connector
	channel *amqp.Channel
	arrived <-chan amqp.Delivery
	closed  <-chan *amqp.Error
}

// open opens a connection and consumes the queue.
func (c *Consumer) open(ctx context.Context) (pull.Session[amqp.Delivery], error) {
	s := &session{Consumer: c, conn: newConnector(c.url, c.amqp)}
	if err := s.consume(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("idemamqp: queue %s: %w", c.queue, err)
	}
	return s, nil
}

func (s *session) consume(ctx context.Context) (err error) {
	if s.channel, err = s.conn.channel(ctx); err != nil {
		return err
	}
	if err := s.channel.Qos(s.prefetch, 0, false); err != nil {
		return err
	}
	s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := s.channel.Consume(s.queue, "", false, false, false, false, nil)
	if err == nil {
		s.arrived = buffered(deliveries, s.prefetch)
	}
	return err
}

// buffered moves deliveries to a channel with a buffer, so that Receive can take all that have
// arrived without waiting. The buffer has room for all of them: the broker delivers at most size
// messages before it waits for acknowledgements.
func buffered(deliveries <-chan amqp.Delivery, size int) <-chan amqp.Delivery {
	arrived := make(chan amqp.Delivery, size)
	go func() {
		defer close(arrived)
		for d := range deliveries {
			arrived <- d
		}
	}()
	return arrived
}

// Close implements pull.Session. The broker redelivers the messages that were not acknowledged.
func (s *session) Close() { s.conn.close() }

// Receive implements pull.Session.
func (s *session) Receive(ctx context.Context, limit int, wait time.Duration) (received []*delivery, err error) {
	arrived := s.arrived
	if limit == 0 {
		arrived = nil
	}
	if len(arrived) == 0 {
		select {
		case d, ok := <-arrived:
			if !ok {
				return nil, s.failure(errUnsubscribed)
			}
			received = append(received, s.delivery(d))
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	for len(received) < limit && len(arrived) > 0 {
		received = append(received, s.delivery(<-arrived))
	}
	return received, nil
}

func (s *session) delivery(d amqp.Delivery) *delivery {
	d.Acknowledger = nil // so that the handler cannot acknowledge the delivery
	return &delivery{Raw: d, Message: inbox.Message{
		Source: s.queue, Type: d.Type, Headers: ownHeaders(d), Payload: d.Body, Deliveries: deliveries(d),
	}}
}

// Settle acknowledges, with one frame, all messages that were delivered before the first waiting
// message. It acknowledges each settled message behind that waiting message with a frame of its
// own.
func (s *session) Settle(_ context.Context, held []*delivery) error {
	prefix := 0
	for prefix < len(held) && isSettled(held[prefix]) {
		prefix++
	}
	if prefix > 0 {
		if err := s.channel.Ack(held[prefix-1].Raw.DeliveryTag, true); err != nil {
			return s.failure(err)
		}
	}
	for _, d := range held[prefix:] {
		if !isSettled(d) {
			continue
		}
		if err := s.channel.Ack(d.Raw.DeliveryTag, false); err != nil {
			return s.failure(err)
		}
	}
	return nil
}

func isSettled(d *delivery) bool {
	_, settled := d.Outcome()
	return settled
}

// failure returns the reason for which the broker has closed the channel, or err if the broker has
// given no reason.
func (s *session) failure(err error) error {
	if s.channel.IsClosed() {
		if reason := <-s.closed; reason != nil {
			err = reason
		}
	}
	return fmt.Errorf("idemamqp: queue %s: %w", s.queue, err)
}
