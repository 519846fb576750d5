package idemamqp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// The example needs a database and a broker, so go test does not run it as one:
// TestExamplePrintsWhatItSays does.
var (
	pool   *pgxpool.Pool
	url    string
	orders string // a quorum queue
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// In each process of the shop.
	relay := outbox.NewRelay(pool, idemamqp.NewPublisher(url, idemamqp.PublisherConfig{}), outbox.RelayConfig{})
	go relay.Run(ctx)

	// In each process that bills.
	billed := make(chan string)
	handle := func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error {
		_, err := tx.Exec(ctx, `INSERT INTO invoices (customer, body) VALUES ($1, $2)`, m.Key, string(m.Payload))
		billed <- d.Type + " of " + m.Key + ": " + string(m.Payload)
		return err
	}
	consumer, err := idemamqp.NewConsumer(pool, "billing", url, orders, handle, idemamqp.ConsumerConfig{Ordered: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	go consumer.Run(ctx)

	// Where an order is placed, in the transaction that stores it.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Add(ctx, tx, outbox.Message{Topic: orders, Key: "customer 7", Type: "OrderPlaced", Payload: []byte("a teapot")})
	})
	fmt.Println(err)
	fmt.Println(<-billed)
	// Prints:
	// <nil>
	// OrderPlaced of customer 7: a teapot
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		n := rabbit(t)
		pool, url, orders = pgtest.New(t), n.url(), queue(t, n, nil)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE invoices (customer text, body text)`); err != nil {
			t.Fatal(err)
		}
	})
}
