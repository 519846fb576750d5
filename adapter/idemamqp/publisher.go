package idemamqp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig changes a Publisher. The zero value works.
type PublisherConfig struct {
	// Route says where a message goes. By default it is the default exchange, with the topic as routing key: the message goes
	// into the queue of that name. Messages of one topic and key have to take one route.
	Route func(m outbox.Message) (exchange, routingKey string)
	// AMQP is how to connect: TLS, heartbeat, the connection's name. Its Recovery is not used.
	AMQP amqp.Config
}

// window is how many messages are sent before the first of them is confirmed.
const window = 512

var errNacked = errors.New("idemamqp: the broker refused the message (nack)")

// Publisher is an outbox.Publisher over one connection, which it opens when it needs it.
type Publisher struct {
	link   *link
	config PublisherConfig
	turn   chan struct{} // held by the one that publishes

	channel  *amqp.Channel
	returned chan amqp.Return
	closed   chan *amqp.Error
}

// NewPublisher returns a Publisher to the broker at this address. It does not connect yet.
func NewPublisher(url string, config PublisherConfig) *Publisher {
	if config.Route == nil {
		config.Route = func(m outbox.Message) (string, string) { return "", m.Topic }
	}
	return &Publisher{link: newLink(url, config.AMQP), config: config, turn: make(chan struct{}, 1)}
}

// Close ends the connection. The next Publish opens another one.
func (p *Publisher) Close() error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	return p.link.close()
}

// Publish returns when the broker has confirmed every message, and names those that it has returned or refused.
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
		if fault(err) { // one of them has closed the channel, and the broker does not say which
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

// sendEach sends one message at a time, so that it is known which one the broker closes the channel for.
func (p *Publisher) sendEach(ctx context.Context, messages []outbox.Message, failed map[string]error) error {
	for i, m := range messages {
		err := p.send(ctx, messages[i:i+1], failed)
		if fault(err) {
			failed[m.ID] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// send sends messages at once and waits for what happens to them. An error says nothing about any of them.
func (p *Publisher) send(ctx context.Context, messages []outbox.Message, failed map[string]error) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.link.cutAfter(ctx)()
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
		if p.channel.IsClosed() { // then it was not the broker who said no
			return p.broken(ctx, amqp.ErrClosed)
		}
		failed[id] = errNacked
	}
	for { // the broker returns a message before it confirms it
		select {
		case r, open := <-p.returned:
			if !open { // the channel has closed meanwhile, and all is confirmed
				return nil
			}
			failed[r.MessageId] = fmt.Errorf("idemamqp: no queue takes the message: %d %s", r.ReplyCode, r.ReplyText)
		default:
			return nil
		}
	}
}

// route asks where a message goes.
func (p *Publisher) route(m outbox.Message) (exchange, key string, err error) {
	err = outbox.Recover(func() error {
		exchange, key = p.config.Route(m)
		return fits(exchange, key, m)
	})
	return exchange, key, err
}

// open makes sure that there is a channel.
func (p *Publisher) open(ctx context.Context) error {
	if p.channel != nil && !p.channel.IsClosed() {
		return nil
	}
	channel, err := p.link.channel(ctx)
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

// broken closes the channel, which may be half-way through something, and says why it was closed if the broker did so.
func (p *Publisher) broken(ctx context.Context, err error) error {
	if !p.channel.IsClosed() {
		p.link.cut()
	}
	if reason := <-p.closed; reason != nil {
		err = reason
	}
	return errors.Join(ctx.Err(), err)
}

// fault tells whether the broker has closed the channel and not the connection: it does so because of what a message asks for.
func fault(err error) bool {
	var reason *amqp.Error
	return errors.As(err, &reason) && reason.Server && reason.Recover
}
