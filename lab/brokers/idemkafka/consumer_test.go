package idemkafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

func TestConsumer_CommitsOffsetsAfterTheTransaction(t *testing.T) {
	t.Parallel()
	c, l := newCluster(t, 1), ledger.New(t)
	commits := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Observe: true})
	c.publish(message("1", "a"))
	ledger.Run(t, c.consumer(l, func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
		if commits.Hits() > 0 {
			t.Error("an offset is committed before the effect of its message")
		}
		return l.Record(tx, m)
	}, idemkafka.ConsumerConfig{}).Run)
	c.committed(1)
}

func TestConsumer_TreatsResetOffsetsAsDuplicates(t *testing.T) {
	t.Parallel()
	onClusters(t, 3, func(t *testing.T, c *cluster) {
		l := ledger.New(t)
		var messages []outbox.Message
		for i := range 50 {
			messages = append(messages, message(fmt.Sprint(i), fmt.Sprint(i%10)))
		}
		c.publish(messages...)
		stop := ledger.Run(t, c.consumer(l, record(l), idemkafka.ConsumerConfig{}).Run)
		c.committed(50)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		admin := kadm.NewClient(c.client())
		var reset kadm.Offsets
		for p := range int32(3) {
			reset.AddOffset(c.topic, p, 0, -1)
		}
		if err := admin.CommitAllOffsets(ledger.Within(t), c.group, reset); err != nil {
			t.Fatal(err)
		}
		c.publish(message("last", "a"))
		ledger.Run(t, c.consumer(l, record(l), idemkafka.ConsumerConfig{}).Run)
		c.committed(51)
		if got := l.Payloads(); len(got) != 51 {
			t.Errorf("%d effects, want 51: %q", len(got), got)
		}
	})
}

func TestConsumer_ReadsOneWindowBeyondAFailedMessage(t *testing.T) {
	t.Parallel()
	c, l := newCluster(t, 2), ledger.New(t)
	var healed atomic.Bool
	config := idemkafka.ConsumerConfig{Batch: 2, Window: 5, Options: []inbox.Option{inbox.WithBackoff(10*time.Millisecond, 10*time.Millisecond), inbox.WithMaxAttempts(1 << 20)}}
	handle := func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
		if m.ID == "bad" && !healed.Load() {
			return errPoison
		}
		return l.Record(tx, m)
	}
	producer := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	to := func(partition int32, id string) {
		t.Helper()
		record := &kgo.Record{Topic: c.topic, Partition: partition, Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
		if err := producer.ProduceSync(ledger.Within(t), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	to(0, "bad")
	for i := range 30 {
		to(0, fmt.Sprintf("0-%02d", i))
	}
	ledger.Run(t, c.consumer(l, handle, config).Run)
	l.WaitForPayloads(4)
	for i := range 5 {
		to(1, fmt.Sprintf("1-%02d", i))
	}
	c.committed(5) // all of partition 1, and none of partition 0
	if n := len(l.Payloads()) - 5; n > 5+2 {
		t.Errorf("%d messages were handled behind the one that waits, the window is 5 and a batch 2", n)
	}
	healed.Store(true)
	c.committed(36)
	if n := len(l.Payloads()); n != 36 {
		t.Errorf("%d effects, want 36", n)
	}
}

func TestConsumer_RetriesAFailedOffsetCommit(t *testing.T) {
	t.Parallel()
	c, l := newCluster(t, 1), ledger.New(t)
	refused := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.InvalidCommitOffsetSize})
	ledger.Run(t, c.consumer(l, record(l), idemkafka.ConsumerConfig{}).Run)
	c.publish(message("1", "a"))
	c.committed(1)
	if refused.Hits() != 1 {
		t.Error("no commit was refused")
	}
}

// A member joins during a batch of another member. The batch finishes, and no message is handled
// again.
func TestConsumer_FinishesItsBatchBeforeARebalance(t *testing.T) {
	t.Parallel()
	onClusters(t, 4, func(t *testing.T, c *cluster) {
		l := ledger.New(t)
		var messages []outbox.Message
		for i := range 40 {
			messages = append(messages, message(fmt.Sprintf("%02d", i), fmt.Sprint(i%20)))
		}
		c.publish(messages...)
		handling, rebalancing := make(chan struct{}), make(chan struct{})
		var once, signal sync.Once
		var runs atomic.Int64
		handle := func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
			once.Do(func() {
				close(handling)
				select {
				case <-rebalancing:
				case <-time.After(ledger.Limit):
					t.Error("no rebalance waits for the batch")
				}
			})
			runs.Add(1)
			return l.Record(tx, m)
		}
		blocked := kgo.OnPartitionsCallbackBlocked(func(context.Context, *kgo.Client) { signal.Do(func() { close(rebalancing) }) })
		ledger.Run(t, c.consumer(l, handle, idemkafka.ConsumerConfig{Batch: 40}, blocked).Run)
		<-handling
		ledger.Run(t, c.consumer(l, handle, idemkafka.ConsumerConfig{}).Run)
		c.committed(40)
		if n := runs.Load(); n != 40 {
			t.Errorf("%d runs of the handler for 40 messages", n)
		}
		if got := l.Payloads(); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 40 {
			t.Errorf("the effects are %q", got)
		}
	})
}

// A message without an ID has the Position as its ID, also after the offsets were reset.
func TestPosition_IsTheSameInEachDelivery(t *testing.T) {
	t.Parallel()
	onClusters(t, 1, func(t *testing.T, c *cluster) {
		for range 2 {
			if err := c.client().ProduceSync(ledger.Within(t), &kgo.Record{Topic: c.topic, Value: []byte("no id")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		first, again := c.stored(2), c.stored(2)
		for i, record := range first {
			if got := idemkafka.Position(record); got != idemkafka.Position(again[i]) || got == idemkafka.Position(first[1-i]) {
				t.Errorf("the Position %s is not the same in each delivery, or not unique", got)
			}
		}
	})
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) { pool, brokers = ledger.New(t).Pool, newCluster(t, 3).seeds })
}
