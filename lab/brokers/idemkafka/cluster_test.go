package idemkafka_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

// brokersVariable has the addresses of real brokers, for the tests that inject no faults.
const brokersVariable = "IDEM_TEST_KAFKA_BROKERS"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var names atomic.Int64

// cluster is a Kafka cluster with one topic.
type cluster struct {
	t     testing.TB
	fake  *kfake.Cluster // nil for a real cluster
	seeds []string
	topic string
	group string
}

// newCluster returns a cluster of kfake.
func newCluster(t testing.TB, partitions int32, opts ...kfake.Opt) *cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append(opts, kfake.NumBrokers(3), kfake.SeedTopics(partitions, "orders"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return &cluster{t: t, fake: fake, seeds: fake.ListenAddrs(), topic: "orders", group: "billing"}
}

// onClusters runs a test on kfake, and on the real brokers in brokersVariable.
func onClusters(t *testing.T, partitions int32, test func(*testing.T, *cluster)) {
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster(t, partitions))
	})
	if os.Getenv(brokersVariable) == "" {
		return
	}
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, realCluster(t, partitions))
	})
}

// realCluster returns the real brokers with a new topic.
func realCluster(t testing.TB, partitions int32) *cluster {
	t.Helper()
	name := fmt.Sprintf("idem-test-%d-%d", time.Now().UnixNano(), names.Add(1))
	c := &cluster{t: t, seeds: strings.Split(os.Getenv(brokersVariable), ","), topic: name, group: name}
	admin := kadm.NewClient(c.client())
	if _, err := admin.CreateTopic(ledger.Within(t), partitions, -1, nil, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = admin.DeleteTopic(ledger.Within(t), name) })
	return c
}

// opts returns the options of every client, and more.
func (c *cluster) opts(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.seeds...), kgo.ProducerLinger(0), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }), kgo.FetchMaxWait(100 * time.Millisecond),
	}, more...)
}

func (c *cluster) client(more ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	client, err := kgo.NewClient(c.opts(more...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

func (c *cluster) publisher(config idemkafka.PublisherConfig, more ...kgo.Opt) *idemkafka.Publisher {
	c.t.Helper()
	publisher, err := idemkafka.NewPublisher(c.client(more...), config)
	if err != nil {
		c.t.Fatal(err)
	}
	return publisher
}

// publish publishes messages to the topic.
func (c *cluster) publish(messages ...outbox.Message) {
	c.t.Helper()
	for i := range messages {
		messages[i].Topic = c.topic
	}
	if err := ledger.Publish(ledger.Within(c.t), c.publisher(idemkafka.PublisherConfig{}), messages); err != nil {
		c.t.Fatal(err)
	}
}

func message(id, key string) outbox.Message {
	return outbox.Message{ID: id, Key: key, Payload: []byte(key + id)}
}

// consumer returns a Consumer of the topic.
func (c *cluster) consumer(l *ledger.Ledger, handle idemkafka.Handler, config idemkafka.ConsumerConfig, more ...kgo.Opt) *idemkafka.Consumer {
	c.t.Helper()
	config.Logger = quiet
	consumer, err := idemkafka.NewConsumer(l.Pool, c.group, handle, config, c.opts(append(more, kgo.ConsumeTopics(c.topic))...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return consumer
}

// stored reads n records of the topic, each partition in its order.
func (c *cluster) stored(n int) (all []*kgo.Record) {
	c.t.Helper()
	client := c.client(kgo.ConsumeTopics(c.topic))
	for len(all) < n {
		fetches := client.PollFetches(ledger.Within(c.t))
		if err := fetches.Err(); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// committed waits until the sum of the committed offsets of all partitions is n.
func (c *cluster) committed(n int64) {
	c.t.Helper()
	admin := kadm.NewClient(c.client())
	ledger.Eventually(c.t, func() error {
		offsets, err := admin.FetchOffsets(ledger.Within(c.t), c.group)
		if err != nil {
			return err
		}
		var sum int64
		offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
		if sum != n {
			return fmt.Errorf("the group has committed %d offsets, want %d", sum, n)
		}
		return nil
	})
}

var errPoison = errors.New("the amount is negative")

// record returns a Handler that records messages.
func record(l *ledger.Ledger) idemkafka.Handler {
	return func(tx pgx.Tx, m inbox.Message, _ *kgo.Record) error { return l.Record(tx, m) }
}
