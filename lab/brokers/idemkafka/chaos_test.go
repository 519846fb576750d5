package idemkafka_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 600, "number of messages of TestChaos")

// The environment variables of the processes that are killed.
const (
	databaseOf = "IDEM_TEST_KAFKA_DATABASE"
	seedsOf    = "IDEM_TEST_KAFKA_SEEDS"
)

func TestMain(m *testing.M) {
	if role := ledger.Role(); role != "" {
		fmt.Fprintln(os.Stderr, work(context.Background(), role))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// work is the work of a process that is killed.
func work(ctx context.Context, role string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err != nil {
		return err
	}
	c := &cluster{seeds: strings.Split(os.Getenv(seedsOf), ",")}
	if role == "relay" {
		client, err := kgo.NewClient(c.opts()...)
		if err != nil {
			return err
		}
		publisher, err := idemkafka.NewPublisher(client, idemkafka.PublisherConfig{Timeout: 2 * time.Second})
		if err != nil {
			return err
		}
		ledger.Ready()
		return outbox.NewRelay(pool, ledger.LoseResults(publisher),
			outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
	}
	consumer, err := idemkafka.NewConsumer(pool, "billing", func(tx pgx.Tx, m inbox.Message, _ *kgo.Record) error {
		return ledger.Handle(ctx, tx, m.ID, m.Key, m.Payload, 50)
	}, idemkafka.ConsumerConfig{Logger: logger, Options: []inbox.Option{inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)}},
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
	dsn, c := pgtest.DSN(t), newCluster(t, 8, kfake.GroupMinSessionTimeout(time.Second))
	database, address := ledger.ProxyDSN(t, dsn)
	do := func(f func()) func() error { return func() error { f(); return nil } }
	chaos := ledger.Chaos{
		Messages: *messages, Topic: c.topic, Pool: pgtest.Open(t, dsn), Database: database,
		Env: []string{databaseOf + "=" + address, seedsOf + "=" + strings.Join(c.seeds, ",")},
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
	if err := chaos.Run(t).Err(); err != nil {
		t.Error(err)
	}
}
