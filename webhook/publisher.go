package webhook

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig says how a Publisher behaves. Endpoint has to be set.
type PublisherConfig struct {
	// Endpoint says where the messages of a topic go: a topic is one endpoint. Who tells several endpoints of the same adds a
	// message for each, in the same transaction, so that each has its own order, attempts and dead letters. It is asked in
	// every call, so secrets can be replaced while the relay runs. An error fails the messages of the topic in that call. No
	// attempt is counted if Endpoint does not answer within Timeout, or its error is that of a database that is unavailable.
	Endpoint func(ctx context.Context, topic string) (Endpoint, error)

	// Base makes the requests. The default is PublicTransport(), which connects to public addresses alone, and then a URL has
	// to be https. Who sets Base, for endpoints of their own or for a proxy that guards the way out, says by it what may be
	// reached.
	Base http.RoundTripper

	// Timeout bounds one message, a second attempt included. The default is 15 seconds. It is never more than half of what
	// outbox.RelayConfig.PublishTimeout gives to a call.
	Timeout time.Duration

	// Concurrency bounds how many messages of the Publisher are under way at once. The default is 256, of which one endpoint has
	// at most 4 for each stream of the relay.
	Concurrency int
}

// Publisher sends the messages of an outbox as webhooks. It is an outbox.OrderKeeper, and an outbox.Divider, for which each topic
// is a destination of its own. It is safe for concurrent use.
//
// A webhook is a POST of the payload, with the headers of the message and these: Webhook-Id is the ID of the message, the
// same in each attempt, and so is Idempotency-Key; Webhook-Timestamp and Webhook-Signature are made for each attempt. The
// Content-Type is application/json unless the message has another. Topic, key and type are not sent: what a receiver needs of
// them belongs into the payload, where it is signed.
//
// 2xx is published. Anything else fails the message, and those of its key that are behind it. Redirects are not followed.
// What does not answer, or answers 429, 502, 503 or 504, is away: its other messages are not sent, and it is left alone for a while,
// which grows up to a minute, or for as long as it says by Retry-After, up to an hour. That counts no attempt.
type Publisher struct {
	config PublisherConfig
	sender sender
	rest   rest
	slots  chan struct{} // one for each message that is under way
}

var (
	_ outbox.OrderKeeper = (*Publisher)(nil)
	_ outbox.Divider     = (*Publisher)(nil)
)

// NewPublisher returns a Publisher.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	switch {
	case config.Endpoint == nil:
		return nil, errors.New("webhook: PublisherConfig.Endpoint has to be set")
	case config.Timeout < 0 || config.Concurrency < 0:
		return nil, errors.New("webhook: PublisherConfig: Timeout or Concurrency is negative")
	}
	if config.Timeout == 0 {
		config.Timeout = 15 * time.Second
	}
	if config.Concurrency == 0 {
		config.Concurrency = 256
	}
	if config.Base == nil {
		config.Base = onlyHTTPS{PublicTransport()}
	}
	return &Publisher{config: config, sender: sender{config.Base, time.Now}, slots: make(chan struct{}, config.Concurrency)}, nil
}

// Publish implements outbox.Publisher. Its error is nil or an *outbox.PublishError.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	c := &publication{
		endpoint: p.config.Endpoint, sender: p.sender, rest: &p.rest,
		slots: p.slots, timeout: p.timeout(ctx), failed: map[string]error{},
	}
	var topics sync.WaitGroup
	for topic, lanes := range lanesOf(messages) {
		topics.Go(func() { c.serve(ctx, topic, lanes) })
	}
	topics.Wait()
	if len(c.failed) > 0 {
		return &outbox.PublishError{Failed: c.failed}
	}
	return nil
}

// timeout is that of a message. It is over well before ctx is, so that what does not answer is named.
func (p *Publisher) timeout(ctx context.Context) time.Duration {
	if deadline, bounded := ctx.Deadline(); bounded {
		return min(p.config.Timeout, time.Until(deadline)/2)
	}
	return p.config.Timeout
}

// KeepsOrder implements outbox.OrderKeeper.
func (p *Publisher) KeepsOrder() bool { return true }

// Destination implements outbox.Divider: a topic is one endpoint.
func (p *Publisher) Destination(topic string) string { return topic }
