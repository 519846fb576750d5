package idemnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig says how messages are published. Its zero value works.
type PublisherConfig struct {
	// Subject returns the subject of a message. The default is its topic. A key that comes from strangers has to be encoded
	// before it is a part of a subject: a message whose subject is none is not published, and becomes a dead letter. So does one
	// whose subject begins with $ or _INBOX., which are the server's: $JS.API.STREAM.PURGE.ORDERS would empty a stream.
	Subject func(outbox.Message) string
	// Timeout is how long the broker may take to confirm a message, 5 s by default. Then it counts as away.
	Timeout time.Duration
}

// Publisher publishes the messages of an outbox to JetStream.
type Publisher struct {
	js     jetstream.JetStream
	config PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher over js. The streams of the subjects have to exist.
func NewPublisher(js jetstream.JetStream, config PublisherConfig) *Publisher {
	if config.Subject == nil {
		config.Subject = func(m outbox.Message) string { return m.Topic }
	}
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	return &Publisher{js: js, config: config}
}

// Publish publishes the messages side by side. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	return outbox.PublishEach(ctx, messages, p.send, blamesMessage)
}

// send returns when a stream has stored the message. That it had it already, from an earlier try, is as good.
func (p *Publisher) send(ctx context.Context, m outbox.Message) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	msg, err := encode(m, p.config.Subject(m))
	if err != nil {
		return err
	}
	_, err = p.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	if errors.Is(err, jetstream.ErrInvalidJSAck) {
		return fmt.Errorf("%w: its subject is answered, and not by a stream: %w", errRefused, err)
	}
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	// No stream took it: either none has this subject, or JetStream is away.
	if _, known := p.js.StreamNameBySubject(ctx, msg.Subject); errors.Is(known, jetstream.ErrStreamNotFound) {
		return known
	}
	return err
}

// blamesMessage says whether another message could be published although this one was not.
func blamesMessage(err error) bool {
	for _, own := range []error{errRefused, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrMaxPayload, jetstream.ErrStreamNotFound} {
		if errors.Is(err, own) {
			return true
		}
	}
	const accountResourcesExceeded = 10002
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 400 && api.ErrorCode != accountResourcesExceeded
}
