package idemkafka_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func newPool(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }

func TestPublisher_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Patience: ledger.Limit, Pool: newPool, New: func(t testing.TB) outboxtest.Target {
		c := newCluster(t, 1)
		target := c.target()
		target.Away = c.outages()
		return target
	}})
}

func TestPublisher_KeepsItsPromisesOnRealBrokers(t *testing.T) {
	t.Parallel()
	if os.Getenv(brokersVariable) == "" {
		return // TestPublisher_KeepsItsPromises is the same on kfake
	}
	outboxtest.Run(t, outboxtest.Suite{Patience: ledger.Limit, Pool: newPool, New: func(t testing.TB) outboxtest.Target { return realCluster(t, 1).target() }})
}

func (c *cluster) target() outboxtest.Target {
	return outboxtest.Target{
		Publisher: c.publisher(idemkafka.PublisherConfig{Timeout: time.Second}, kgo.UnknownTopicRetries(1)), Topic: c.topic, Arrived: c.reader(),
		Bad: map[string]func(*outbox.Message){
			"too large":                    func(m *outbox.Message) { m.Payload = make([]byte, 2<<20) },
			"no such topic":                func(m *outbox.Message) { m.Topic = "returns" },
			"a topic that is none":         func(m *outbox.Message) { m.Topic = "a topic" },
			"a header that is not its own": func(m *outbox.Message) { m.Headers = map[string]string{"id": "7"} },
		},
	}
}

// reader returns a function that reads the topic without a group.
func (c *cluster) reader() func(context.Context) ([]outbox.Message, error) {
	client := c.client(kgo.ConsumeTopics(c.topic))
	return func(ctx context.Context) (all []outbox.Message, err error) {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		for _, r := range client.PollFetches(ctx).Records() {
			all = append(all, messageOf(r))
		}
		return all, nil
	}
}

// messageOf reads a record by the names that other programs know, such as Debezium's event router.
func messageOf(r *kgo.Record) outbox.Message {
	m := outbox.Message{Key: string(r.Key), Payload: r.Value, Headers: map[string]string{}}
	for _, h := range r.Headers {
		m.Headers[h.Key] = string(h.Value)
	}
	m.ID, m.Type = m.Headers["id"], m.Headers["type"]
	delete(m.Headers, "id")
	delete(m.Headers, "type")
	return m
}

func (c *cluster) outages() map[string]func() func() {
	fault := func(err *kerr.Error) func() func() {
		return func() func() {
			return c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.InitProducerID}, Err: err, Count: -1}).Remove
		}
	}
	return map[string]func() func(){
		"down":             func() func() { c.fake.Close(); return nil },
		"too few replicas": fault(kerr.NotEnoughReplicas),
		"no leader":        fault(kerr.NotLeaderForPartition),
		"no right to the cluster": func() func() { // the client does not ask for a producer ID again
			fault(kerr.ClusterAuthorizationFailed)()
			return nil
		},
	}
}

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Suite{Patience: ledger.Limit, Pool: newPool, New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
		return newCluster(t, 3, kfake.GroupMinSessionTimeout(time.Second)).source(pool)
	}})
}

func (c *cluster) source(pool *pgxpool.Pool) inboxtest.Source {
	publisher, admin, delivered := c.publisher(idemkafka.PublisherConfig{}), kadm.NewClient(c.client()), 0
	return inboxtest.Source{
		Name: c.group, Ordered: true,
		Deliver: func(ctx context.Context, messages ...inbox.Message) error {
			delivered += len(messages)
			return ledger.Publish(ctx, publisher, ledger.Outgoing(c.topic, messages))
		},
		Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
			enter := func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
				raw := messageOf(record)
				if raw.ID != m.ID || raw.Key != m.Key || raw.Type != m.Type || !bytes.Equal(raw.Payload, m.Payload) {
					panic(fmt.Sprintf("message %+v comes with %+v", m, raw))
				}
				return handle(tx, m)
			}
			config := idemkafka.ConsumerConfig{Batch: 7, Options: options, Logger: quiet}
			consumer, err := idemkafka.NewConsumer(pool, c.group, enter, config, c.opts(kgo.ConsumeTopics(c.topic))...)
			if err != nil {
				return err
			}
			return consumer.Run(ctx)
		},
		Left: func(ctx context.Context) (int, error) {
			offsets, err := admin.FetchOffsets(ctx, c.group)
			left := delivered
			offsets.Each(func(o kadm.OffsetResponse) { left -= int(max(o.At, 0)) })
			return left, err
		},
	}
}
