package idemamqp_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

// roles are the kinds of work of the processes that are killed.
var roles = map[string]func(context.Context, *ledger.Child) error{
	"relay": func(ctx context.Context, child *ledger.Child) error {
		return child.Relay(ctx, idemamqp.NewPublisher(child.Broker, idemamqp.PublisherConfig{}))
	},
	"consumer": func(ctx context.Context, child *ledger.Child) error {
		return consume(ctx, child, 10, func(tx pgx.Tx, _ inbox.Message, _ amqp.Delivery) error { return ledger.Handle(tx) })
	},
	"victim": func(ctx context.Context, child *ledger.Child) error {
		return consume(ctx, child, 2, func(tx pgx.Tx, m inbox.Message, _ amqp.Delivery) error {
			if string(m.Payload) == "deadly" {
				os.Exit(3)
			}
			return new(ledger.Ledger).Record(tx, m)
		})
	},
}

func consume(ctx context.Context, child *ledger.Child, attempts int, handle idemamqp.Handler) error {
	c, err := idemamqp.NewConsumer(child.Pool, "books", child.Broker, child.Topic, handle, idemamqp.ConsumerConfig{
		Ordered: true, Logger: child.Logger, Options: []inbox.Option{ledger.Quick, inbox.WithMaxAttempts(attempts)},
	})
	if err != nil {
		return err
	}
	ledger.Ready()
	return c.Run(ctx)
}

// It is not parallel, because it restarts the broker that all tests share.
func TestChaos_Ordered(t *testing.T) {
	pgtest.Long(t)
	n := rabbit(t)
	q, ch := queue(t, n, amqp.Table{"x-single-active-consumer": true}), (*amqp.Channel)(nil)
	n.awaitRegistered(t, q)
	broker := ledger.Proxy(t, fmt.Sprintf("127.0.0.1:%d", n.port))
	chaos := ledger.Chaos{
		DSN: pgtest.DSN(t), Topic: q, Address: n.at(broker.Addr()), Broker: broker,
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
	chaos.Run(t)
}
