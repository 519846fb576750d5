package idemnats_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 600, "number of messages of TestChaos")

// The environment variables of the processes that are killed.
const (
	databaseOf = "IDEM_TEST_NATS_DATABASE"
	brokerOf   = "IDEM_TEST_NATS_BROKER"
	inOrder    = "IDEM_TEST_NATS_IN_ORDER"
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
	nc, err := nats.Connect(os.Getenv(brokerOf), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ledger.Ready()
	if role == "relay" {
		publisher := ledger.LoseResults(idemnats.NewPublisher(js, idemnats.PublisherConfig{Timeout: time.Second}))
		return outbox.NewRelay(pool, publisher, outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
	}
	source, err := js.Consumer(ctx, "ORDERS", "billing")
	for ; err != nil; source, err = js.Consumer(ctx, "ORDERS", "billing") {
		time.Sleep(20 * time.Millisecond)
	}
	consumer, err := idemnats.NewConsumer(pool, "billing", source, func(tx pgx.Tx, m inbox.Message, _ jetstream.Msg) error {
		return ledger.Handle(ctx, tx, m.ID, m.Key, m.Payload, 50)
	}, idemnats.ConsumerConfig{
		Ordered: os.Getenv(inOrder) != "", Logger: logger, Options: []inbox.Option{inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)},
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func TestChaos_Ordered(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	if err := chaos(t, 1, inOrder+"=1").Err(); err != nil {
		t.Error(err)
	}
}

func TestChaos_Unordered(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	report := chaos(t, 3)
	report.Inversions = 0
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}

func chaos(t *testing.T, consumers int, env ...string) ledger.Report {
	dsn, b := pgtest.DSN(t), newBroker(t)
	database, address := ledger.ProxyDSN(t, dsn)
	broker := ledger.Proxy(t, b.url())
	// The duplicate window is so short that messages are stored twice.
	stream := newStream(t, b.connect(), func(s *jetstream.StreamConfig) { s.Duplicates = 100 * time.Millisecond })
	source := newSource(t, stream, func(s *jetstream.ConsumerConfig) { s.AckWait, s.MaxAckPending = time.Second, 5000 })
	c := ledger.Chaos{
		Messages: *messages, Topic: "orders", Consumers: consumers, Pool: pgtest.Open(t, dsn), Database: database, Broker: broker,
		Env:     append(env, databaseOf+"="+address, brokerOf+"="+broker.Addr()),
		Restart: func() error { b.stop(); b.start(); return nil },
		Idle: func() (bool, error) {
			info, err := source.Info(t.Context())
			return err == nil && info.NumAckPending+int(info.NumPending) == 0, err
		},
	}
	return c.Run(t)
}
