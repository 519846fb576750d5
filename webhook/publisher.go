package webhook

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig configures a Publisher. Endpoint is required.
type PublisherConfig struct {
	// Endpoint returns the endpoint of a topic. Each topic has one endpoint. To notify several
	// endpoints of an event, add a message for each of them in the same transaction. Then each
	// endpoint has its own order, attempts and dead letters. Every call of Publish calls Endpoint, so
	// secrets can be replaced while the relay runs. If Endpoint returns an error, the messages of the
	// topic fail. No attempt counts if Endpoint does not return within Timeout, or if its error says
	// that a database is unavailable.
	Endpoint func(ctx context.Context, topic string) (Endpoint, error)

	// Base makes the requests. The default is PublicTransport(), which connects only to public
	// addresses, and refuses URLs that are not https. If the application sets a Base, the Base alone
	// decides what may be reached. Set it for internal endpoints, or for a proxy that restricts
	// outgoing connections.
	Base http.RoundTripper

	// Timeout bounds all attempts at one message in a call together. The default is 15 seconds. The
	// timeout in use is never more than half of outbox.RelayConfig.PublishTimeout.
	Timeout time.Duration

	// Concurrency is the maximum number of messages that the Publisher sends concurrently. The default
	// is 256. At most 4 of them go to the same endpoint, for each stream of the relay.
	Concurrency int
}

// Publisher sends the messages of an outbox as webhooks. It is an outbox.OrderKeeper, and an
// outbox.Divider with a destination for each topic. It is safe for concurrent use.
//
// A webhook is a POST request with the payload as its body and with the headers of the message.
// Webhook-Id and Idempotency-Key are the ID of the message, which is the same in each attempt.
// Webhook-Timestamp and Webhook-Signature differ in each attempt. The Content-Type is
// application/json unless the message has another. Topic, key and type are not sent. If a receiver
// needs them, put them into the payload, which is signed.
//
// A message is published if the endpoint answers with 2xx. After another answer the message has
// failed, and the later messages of its key are not sent. Redirects are not followed. An endpoint
// that does not answer, or answers with 429, 502, 503 or 504, is unavailable. It receives no
// message during a backoff of up to a minute, or for the time of its Retry-After, up to an hour. No
// attempt counts while an endpoint is unavailable. There is one exception: if the endpoint is
// unavailable for a message, then answers another message, and is unavailable for the first message
// again, an attempt counts for the first message.
type Publisher struct {
	config   PublisherConfig
	sender   sender
	backoffs backoffs
	slots    chan struct{} // has an element for each message in progress
}

var (
	_ outbox.OrderKeeper = (*Publisher)(nil)
	_ outbox.Divider     = (*Publisher)(nil)
)

// NewPublisher returns a Publisher. It fails if the config is invalid.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	switch {
	case config.Endpoint == nil:
		return nil, errors.New("webhook: PublisherConfig.Endpoint is nil")
	case config.Timeout < 0 || config.Concurrency < 0:
		return nil, errors.New("webhook: PublisherConfig: Timeout or Concurrency is negative")
	}
	config.Timeout = cmp.Or(config.Timeout, 15*time.Second)
	config.Concurrency = cmp.Or(config.Concurrency, 256)
	if config.Base == nil {
		config.Base = onlyHTTPS{PublicTransport()}
	}
	slots := make(chan struct{}, config.Concurrency)
	return &Publisher{config: config, sender: sender{config.Base, time.Now}, slots: slots}, nil
}

// Publish implements outbox.Publisher. Its error is nil or an *outbox.PublishError.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	c := &publication{
		endpoint: p.config.Endpoint, sender: p.sender, backoffs: &p.backoffs,
		slots: p.slots, timeout: p.timeout(ctx), failed: map[string]error{},
	}
	var topics sync.WaitGroup
	for topic, queues := range queuesByTopic(messages) {
		topics.Go(func() { c.sendTopic(ctx, topic, queues) })
	}
	topics.Wait()
	if len(c.failed) > 0 {
		return &outbox.PublishError{Failed: c.failed}
	}
	return nil
}

// timeout returns the timeout of a message. It ends well before ctx, so that Publish has time to
// name a message whose endpoint does not answer.
func (p *Publisher) timeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(p.config.Timeout, time.Until(deadline)/2)
	}
	return p.config.Timeout
}

// KeepsOrder implements outbox.OrderKeeper.
func (p *Publisher) KeepsOrder() bool { return true }

// Destination implements outbox.Divider.
func (p *Publisher) Destination(topic string) string { return topic }
