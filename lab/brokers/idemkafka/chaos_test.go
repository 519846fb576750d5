package idemkafka_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestMain(m *testing.M) {
	ledger.Work(map[string]func(context.Context, *ledger.Child) error{"relay": relay, "consumer": consume})
	os.Exit(m.Run())
}

func relay(ctx context.Context, child *ledger.Child) error {
	c := &cluster{seeds: strings.Split(child.Broker, ",")}
	client, err := kgo.NewClient(c.opts()...)
	if err != nil {
		return err
	}
	publisher, err := idemkafka.NewPublisher(client, idemkafka.PublisherConfig{Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	return child.Relay(ctx, ledger.LoseResults(publisher))
}

func consume(ctx context.Context, child *ledger.Child) error {
	c := &cluster{seeds: strings.Split(child.Broker, ",")}
	consumer, err := idemkafka.NewConsumer(child.Pool, "billing", func(tx pgx.Tx, _ inbox.Message, _ *kgo.Record) error {
		return ledger.Handle(tx)
	}, idemkafka.ConsumerConfig{Logger: child.Logger, Options: []inbox.Option{ledger.Quick}},
		c.opts(kgo.ConsumeTopics("orders"), kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(100*time.Millisecond),
			// If kfake moves a coordinator, a joining consumer may get no answer, for 70 seconds by
			// default.
			kgo.RebalanceTimeout(3*time.Second), kgo.RequestTimeoutOverhead(3*time.Second))...)
	if err != nil {
		return err
	}
	ledger.Ready()
	return consumer.Run(ctx)
}

// The broker is in the test process and keeps its messages in memory, so it is not restarted.
func TestChaos_Ordered(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	c := newCluster(t, 8, kfake.GroupMinSessionTimeout(time.Second))
	do := func(f func()) func() error { return func() error { f(); return nil } }
	chaos := ledger.Chaos{
		DSN: pgtest.DSN(t), Topic: c.topic, Address: strings.Join(c.seeds, ","),
		Faults: func(every ledger.Every) []ledger.Fault {
			return []ledger.Fault{
				{Name: "leaders moved", Every: every(10), Inject: do(c.fake.ShufflePartitionLeaders)},
				{Name: "coordinators moved", Every: every(10), Inject: do(c.fake.RehashCoordinators)},
				{Name: "answers lost or refused", Every: every(10), Inject: do(func() {
					c.fake.Fault(
						kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3},
						kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 3},
						kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorNotAvailable, Count: 3},
						kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: 3},
					)
				})},
			}
		},
		Idle: func() (bool, error) { return true, nil }, // uncommitted offsets only cause duplicates
	}
	chaos.Run(t)
}
