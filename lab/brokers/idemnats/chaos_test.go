package idemnats_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

// inOrder is set for consumers that keep the order.
const inOrder = "IDEM_TEST_NATS_IN_ORDER"

func TestMain(m *testing.M) {
	ledger.Work(map[string]func(context.Context, *ledger.Child) error{"relay": relay, "consumer": consume})
	os.Exit(m.Run())
}

func connect(child *ledger.Child) (jetstream.JetStream, error) {
	nc, err := nats.Connect(child.Broker, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc)
}

func relay(ctx context.Context, child *ledger.Child) error {
	js, err := connect(child)
	if err != nil {
		return err
	}
	return child.Relay(ctx, ledger.LoseResults(idemnats.NewPublisher(js, idemnats.PublisherConfig{Timeout: time.Second})))
}

func consume(ctx context.Context, child *ledger.Child) error {
	js, err := connect(child)
	if err != nil {
		return err
	}
	ledger.Ready()
	source, err := js.Consumer(ctx, "ORDERS", "billing")
	for ; err != nil; source, err = js.Consumer(ctx, "ORDERS", "billing") {
		time.Sleep(20 * time.Millisecond)
	}
	consumer, err := idemnats.NewConsumer(child.Pool, "billing", source, func(tx pgx.Tx, _ inbox.Message, _ jetstream.Msg) error {
		return ledger.Handle(tx)
	}, idemnats.ConsumerConfig{Ordered: os.Getenv(inOrder) != "", Logger: child.Logger, Options: []inbox.Option{ledger.Quick}})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func TestChaos_Ordered(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	chaos(t, ledger.Chaos{Consumers: 1, Env: []string{inOrder + "=1"}})
}

func TestChaos_Unordered(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	chaos(t, ledger.Chaos{Consumers: 3, Unordered: true})
}

func chaos(t *testing.T, c ledger.Chaos) {
	b := newBroker(t)
	// The duplicate window is so short that messages are stored twice.
	stream := newStream(t, b.connect(), func(s *jetstream.StreamConfig) { s.Duplicates = 100 * time.Millisecond })
	source := newSource(t, stream, func(s *jetstream.ConsumerConfig) { s.AckWait, s.MaxAckPending = time.Second, 5000 })
	c.DSN, c.Topic, c.Broker = pgtest.DSN(t), "orders", ledger.Proxy(t, b.url())
	c.Address = c.Broker.Addr()
	c.Restart = func() error { b.stop(); b.start(); return nil }
	c.Idle = func() (bool, error) {
		info, err := source.Info(t.Context())
		return err == nil && info.NumAckPending+int(info.NumPending) == 0, err
	}
	c.Run(t)
}
