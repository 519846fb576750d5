package idemnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig configures a Publisher. Its zero value works.
type PublisherConfig struct {
	// Subject returns the subject of a message, by default its topic. If a part of a subject comes
	// from outside of the program, encode it. A message with an invalid subject is not published
	// and becomes a dead letter. The same happens to a message whose subject has the prefix $ or
	// _INBOX., because the server reserves these prefixes: a message to $JS.API.STREAM.PURGE.ORDERS
	// would empty a stream.
	Subject func(outbox.Message) string
	// Timeout is how long the broker may take to confirm a message, 5 s by default. After that time
	// the broker counts as unavailable.
	Timeout time.Duration
}

// Publisher publishes the messages of an outbox to JetStream.
type Publisher struct {
	js     jetstream.JetStream
	config PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher that uses js. The streams of the subjects have to exist.
func NewPublisher(js jetstream.JetStream, config PublisherConfig) *Publisher {
	if config.Subject == nil {
		config.Subject = func(m outbox.Message) string { return m.Topic }
	}
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	return &Publisher{js: js, config: config}
}

// Publish publishes the messages concurrently. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	return outbox.PublishEach(ctx, messages, p.send, concernsMessage)
}

// send publishes one message. It returns nil if a stream has stored the message, now or in an
// earlier attempt.
func (p *Publisher) send(ctx context.Context, m outbox.Message) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	msg, err := encode(m, p.config.Subject(m))
	if err != nil {
		return err
	}
	_, err = p.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	if isFull(err) {
		return outbox.RetryLater(err, 0)
	}
	if errors.Is(err, jetstream.ErrInvalidJSAck) {
		return fmt.Errorf("%w: another service than a stream answers its subject: %w; correct PublisherConfig.Subject", errRefused, err)
	}
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	// ErrNoStreamResponse has two causes: no stream has this subject, or JetStream is unavailable.
	if _, lookup := p.js.StreamNameBySubject(ctx, msg.Subject); errors.Is(lookup, jetstream.ErrStreamNotFound) {
		return lookup
	}
	return err
}

// isFull reports whether a message was refused because its stream, its account or the server has no
// room. send marks such an error with RetryLater, so that the relay waits and counts no attempt.
// Without the mark, the relay would publish the messages one by one. A full stream still confirms a
// message that it has stored before. After such a confirmation the relay would count an attempt of
// each refused message.
func isFull(err error) bool {
	const accountFull, serverBusy, memoryFull, diskFull, streamFull = 10002, 10023, 10028, 10047, 10077
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains([]jetstream.ErrorCode{accountFull, serverBusy, memoryFull, diskFull, streamFull}, api.ErrorCode)
}

// concernsMessage reports whether err concerns one message alone, so that the other messages can be
// published. Errors with Code 400 do, except the error of a full account, which concerns every
// message.
func concernsMessage(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 400 && !isFull(err) || slices.ContainsFunc([]error{
		errRefused, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrMaxPayload, jetstream.ErrStreamNotFound,
	}, func(own error) bool { return errors.Is(err, own) })
}
