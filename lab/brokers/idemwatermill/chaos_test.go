package idemwatermill_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 400, "number of messages of TestChaos")

// The environment variables of the processes that are killed.
const (
	databaseOf = "IDEM_TEST_WATERMILL_DATABASE"
	brokerOf   = "IDEM_TEST_WATERMILL_BROKER"
	topicOf    = "IDEM_TEST_WATERMILL_TOPIC"
)

// work is the work of a process that is killed.
func work(ctx context.Context, role string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err != nil {
		return err
	}
	broker, topic := os.Getenv(brokerOf), os.Getenv(topicOf)
	if role == "relay" {
		publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client(broker)}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		ledger.Ready()
		return outbox.NewRelay(pool, idemwatermill.NewPublisher(publisher, idemwatermill.PublisherConfig{}),
			outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
	}
	handle := func(tx pgx.Tx, msg *message.Message) error {
		return ledger.Handle(ctx, tx, msg.UUID, msg.Metadata.Get(idemwatermill.MetadataKey), msg.Payload, 50)
	}
	ledger.Ready()
	for { // Run returns if it cannot subscribe
		router, err := newRouter(broker, topic, idemwatermill.Handler(pool, "books", handle, idemwatermill.HandlerConfig{
			Logger: logger, Options: []inbox.Option{inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)},
		}))
		if err == nil {
			err = router.Run(ctx)
		}
		logger.Warn("the router has ended", "error", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// It is not parallel, because it restarts the broker that all tests share. A Redis consumer group
// has no order: messages of a consumer that died come after MaxIdleTime, behind later ones.
func TestChaos(t *testing.T) {
	pgtest.Long(t)
	s := broker(t)
	topic, dsn := uuid.NewString(), pgtest.DSN(t)
	database, address := ledger.ProxyDSN(t, dsn)
	proxy := ledger.Proxy(t, s.address())
	chaos := ledger.Chaos{
		Messages: *messages, Topic: topic, Pool: pgtest.Open(t, dsn), Database: database, Broker: proxy,
		Env:     []string{databaseOf + "=" + address, brokerOf + "=" + proxy.Addr(), topicOf + "=" + topic},
		Restart: func() error { return s.restart(t.Context()) },
		Idle:    func() (bool, error) { return unacknowledged(t, s, topic) == 0, nil },
	}
	report := chaos.Run(t)
	report.Inversions = 0
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}
