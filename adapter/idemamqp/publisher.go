package idemamqp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig configures a Publisher. The zero value works.
type PublisherConfig struct {
	// Route returns the exchange and the routing key of a message. By default, the message goes to
	// the queue with the name of its topic, through the default exchange. Messages of one topic and
	// key must have the same route.
	Route func(m outbox.Message) (exchange, routingKey string)
	// AMQP configures the connection: TLS, heartbeat, name. Its Recovery is ignored.
	AMQP amqp.Config
}

// window is the maximum number of messages that are sent without a wait for their confirmations.
const window = 512

var errNacked = errors.New("idemamqp: the broker refused the message (nack)")

// Publisher publishes the messages of an outbox to RabbitMQ. It opens a connection when it needs
// one.
type Publisher struct {
	conn   *connector
	config PublisherConfig
	turn   chan struct{} // a mutex; the end of a context can interrupt a wait for it

	channel  *amqp.Channel
	returned chan amqp.Return
	closed   chan *amqp.Error
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher to the broker at url. The first Publish connects to the broker.
func NewPublisher(url string, config PublisherConfig) *Publisher {
	if config.Route == nil {
		config.Route = func(m outbox.Message) (string, string) { return "", m.Topic }
	}
	return &Publisher{conn: newConnector(url, config.AMQP), config: config, turn: make(chan struct{}, 1)}
}

// Close closes the connection. The next Publish opens another one.
func (p *Publisher) Close() error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	return p.conn.close()
}

// Publish sends the messages, and returns when the broker has confirmed, returned or refused each
// of them. Its error names the messages that are not stored in a queue. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	failed := map[string]error{}
	for some := range slices.Chunk(messages, window) {
		err := p.send(ctx, some, failed)
		if closedChannel(err) { // one message made the broker close the channel; the error does not say which
			err = p.sendEach(ctx, some, failed)
		}
		if err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}

// sendEach sends one message at a time, to find the messages for which the broker closes the
// channel.
func (p *Publisher) sendEach(ctx context.Context, messages []outbox.Message, failed map[string]error) error {
	for i, m := range messages {
		err := p.send(ctx, messages[i:i+1], failed)
		if closedChannel(err) {
			failed[m.ID] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// send sends the messages and waits for their confirmations. It adds the error of each refused or
// returned message to the map failed. The error that send itself returns concerns the connection or
// the channel.
func (p *Publisher) send(ctx context.Context, messages []outbox.Message, failed map[string]error) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.conn.closeSocketAfter(ctx)()
	confirmed := make(map[string]*amqp.DeferredConfirmation, len(messages))
	for _, m := range messages {
		exchange, key, err := p.route(m)
		if err != nil {
			failed[m.ID] = err
			continue
		}
		if confirmed[m.ID], err = p.channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, publishing(m)); err != nil {
			return p.broken(ctx, err)
		}
	}
	for id, c := range confirmed {
		if c.Wait() {
			continue
		}
		if p.channel.IsClosed() { // Wait also returns false if the channel was closed
			return p.broken(ctx, amqp.ErrClosed)
		}
		failed[id] = errNacked
	}
	for { // all returned messages have arrived: the broker returns a message before confirming it
		select {
		case r, open := <-p.returned:
			if !open { // p.channel was closed, which does no harm after all confirmations
				return nil
			}
			failed[r.MessageId] = fmt.Errorf("idemamqp: no queue takes the message: %d %s; bind a queue or correct PublisherConfig.Route", r.ReplyCode, r.ReplyText)
		default:
			return nil
		}
	}
}

// route returns the route of a message, or an error if the message cannot be published.
func (p *Publisher) route(m outbox.Message) (exchange, key string, err error) {
	err = outbox.Recover(func() error {
		exchange, key = p.config.Route(m)
		return checkMessage(exchange, key, m)
	})
	return exchange, key, err
}

func (p *Publisher) open(ctx context.Context) error {
	if p.channel != nil && !p.channel.IsClosed() {
		return nil
	}
	channel, err := p.conn.channel(ctx)
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	p.returned = channel.NotifyReturn(make(chan amqp.Return, window))
	p.closed = channel.NotifyClose(make(chan *amqp.Error, 1))
	p.channel = channel
	return nil
}

// broken closes the connection if the channel is still open, because the client may have sent only
// a part of a frame. It returns the reason for which the broker has closed the channel, or else
// err.
func (p *Publisher) broken(ctx context.Context, err error) error {
	if !p.channel.IsClosed() {
		p.conn.abort()
	}
	if reason := <-p.closed; reason != nil {
		err = reason
	}
	return errors.Join(ctx.Err(), err)
}

// closedChannel reports whether err means that the broker has closed only the channel, and not the
// connection. The broker closes only the channel if a message is the cause.
func closedChannel(err error) bool {
	var reason *amqp.Error
	return errors.As(err, &reason) && reason.Server && reason.Recover
}
