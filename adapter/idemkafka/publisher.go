package idemkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig configures a Publisher. Its zero value works.
type PublisherConfig struct {
	// Timeout is how long the brokers may take to confirm a message, 10 s by default. After that
	// time the brokers count as unavailable.
	Timeout time.Duration
}

// Publisher publishes the messages of an outbox to Kafka.
type Publisher struct {
	client *kgo.Client
	config PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher that uses client. It fails unless client is an idempotent
// producer that waits for all in-sync replicas. That is the default of franz-go. If the client has
// another partitioner than the default, the partitioner must map a key to the same partition each
// time.
//
// Make the client with kgo.ProducerLinger(0): the relay publishes the messages of a key one by one,
// and with a linger each of them would wait.
func NewPublisher(client *kgo.Client, config PublisherConfig) (*Publisher, error) {
	if client.OptValue(kgo.DisableIdempotentWrite) == true || client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks() {
		return nil, errors.New("idemkafka: the client would lose messages; leave kgo.DisableIdempotentWrite out and set kgo.RequiredAcks(kgo.AllISRAcks())")
	}
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	return &Publisher{client: client, config: config}, nil
}

// Publish publishes the messages concurrently. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	return outbox.PublishEach(ctx, messages, p.send, concernsMessage)
}

// send returns nil when all in-sync replicas have the message. When ctx or the timeout ends, send
// returns an error. If the client does not know by then whether a broker has the message, the
// client keeps retrying, to leave no gap in its sequence numbers. The relay also publishes the
// message again, so the message may be stored twice.
func (p *Publisher) send(ctx context.Context, m outbox.Message) error {
	record, err := encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	done := make(chan error, 1)
	p.client.Produce(ctx, record, func(_ *kgo.Record, err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("idemkafka: no broker has confirmed the message in time: %w", ctx.Err())
	}
}

// concernsMessage reports whether err concerns one message alone, so that the other messages can be
// published.
func concernsMessage(err error) bool {
	return slices.ContainsFunc([]error{
		errRefused, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.PolicyViolation,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
	}, func(own error) bool { return errors.Is(err, own) })
}
