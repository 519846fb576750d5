package idemamqp_test

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
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var messages = flag.Int("messages", 600, "number of messages of TestChaos")

// The environment variables of the processes that are killed.
const (
	databaseOf = "IDEM_TEST_AMQP_DATABASE"
	brokerOf   = "IDEM_TEST_AMQP_BROKER"
	queueOf    = "IDEM_TEST_AMQP_QUEUE"
)

// work is the work of a process that is killed.
func work(ctx context.Context, role string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	pool, err := pgxpool.New(ctx, os.Getenv(databaseOf))
	if err != nil {
		return err
	}
	broker, queue := os.Getenv(brokerOf), os.Getenv(queueOf)
	handle := func(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
		switch {
		case role == "victim" && string(m.Payload) == "deadly":
			os.Exit(3)
		case role == "victim":
			return new(ledger.Ledger).Record(tx, m)
		}
		return ledger.Handle(ctx, tx, m.ID, m.Key, m.Payload, 50)
	}
	attempts := 10
	if role == "victim" {
		attempts = 2
	}
	c, err := idemamqp.NewConsumer(pool, "books", broker, queue, handle, idemamqp.ConsumerConfig{
		Ordered: true, Logger: logger, Options: []inbox.Option{inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond), inbox.WithMaxAttempts(attempts)},
	})
	if err != nil {
		return err
	}
	ledger.Ready()
	if role != "relay" {
		return c.Run(ctx)
	}
	publisher := idemamqp.NewPublisher(broker, idemamqp.PublisherConfig{})
	return outbox.NewRelay(pool, publisher, outbox.RelayConfig{Logger: logger, MinPause: 20 * time.Millisecond, MaxPause: time.Second}).Run(ctx)
}

// It is not parallel, because it restarts the broker that all tests share.
func TestChaos_Ordered(t *testing.T) {
	pgtest.Long(t)
	n := rabbit(t)
	q, ch := queue(t, n, amqp.Table{"x-single-active-consumer": true}), (*amqp.Channel)(nil)
	n.awaitRegistered(t, q)
	dsn := pgtest.DSN(t)
	database, address := ledger.ProxyDSN(t, dsn)
	broker := ledger.Proxy(t, fmt.Sprintf("127.0.0.1:%d", n.port))
	chaos := ledger.Chaos{
		Messages: *messages, Topic: q, Pool: pgtest.Open(t, dsn), Database: database, Broker: broker,
		Env: []string{databaseOf + "=" + address, brokerOf + "=" + n.at(broker.Addr()), queueOf + "=" + q},
		Restart: func() error {
			n.kill()
			return n.start(t.Context())
		},
		Idle: func() (bool, error) {
			if ch == nil {
				ch = channel(t, n)
			}
			state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
			return state.Messages == 0, err
		},
	}
	if err := chaos.Run(t).Err(); err != nil {
		t.Error(err)
	}
}
