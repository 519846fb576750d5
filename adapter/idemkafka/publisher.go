package idemkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig says how messages are published. Its zero value works.
type PublisherConfig struct {
	// Timeout is how long the brokers may take to confirm a message, 10 s by default. Then they count as away.
	Timeout time.Duration
}

// Publisher publishes the messages of an outbox to Kafka.
type Publisher struct {
	client *kgo.Client
	config PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher over client, which has to be an idempotent producer that waits for all replicas in sync:
// franz-go's defaults. A partitioner other than the default one has to send a key always to the same partition.
//
// The client is best made with kgo.ProducerLinger(0): the relay publishes messages of one key one after the other, and each of
// them would wait for others.
func NewPublisher(client *kgo.Client, config PublisherConfig) (*Publisher, error) {
	if client.OptValue(kgo.DisableIdempotentWrite) == true || client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks() {
		return nil, errors.New("idemkafka: the client is no idempotent producer that waits for all replicas in sync: messages would be lost")
	}
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	return &Publisher{client: client, config: config}, nil
}

// Publish publishes the messages side by side. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	return outbox.PublishEach(ctx, messages, p.send, blamesMessage)
}

// send returns when all replicas in sync have the message. A client that does not know whether a broker has it goes on
// trying beyond the end of ctx, because it may not leave a gap in its sequence. So the message may still come twice.
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
		return fmt.Errorf("idemkafka: no broker has confirmed a message: %w", ctx.Err())
	}
}

// blamesMessage says whether another message could be published although this one was not.
func blamesMessage(err error) bool {
	for _, own := range []error{
		errRefused, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.PolicyViolation,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
	} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}
