package direct_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// The example needs two databases. TestExamplePrintsWhatItSays opens them and runs it.
var shopPool, billingPool *pgxpool.Pool

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	invoiced := make(chan string)
	billing, err := direct.NewConsumer(billingPool, "billing", func(tx pgx.Tx, m inbox.Message) error {
		if _, err := tx.Exec(inbox.Context(tx), "insert into invoices (about) values ($1)", m.Key); err != nil {
			return err
		}
		invoiced <- m.Type + " of " + m.Key
		return nil
	}, direct.ConsumerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	relay := outbox.NewRelay(shopPool, billing, outbox.RelayConfig{Name: "billing", Topics: []string{"orders"}, Poll: 50 * time.Millisecond})
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }() // in every process

	err = pgx.BeginFunc(ctx, shopPool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (customer) values ('customer-7')"); err != nil {
			return err
		}
		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "customer-7", Type: "OrderPlaced"})
	})
	fmt.Println(err, <-invoiced)
	stop()
	fmt.Println(<-ended)
	// Prints:
	// <nil> OrderPlaced of customer-7
	// <nil>
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		shopPool, billingPool = pgtest.New(t), pgtest.New(t)
		for pool, table := range map[*pgxpool.Pool]string{shopPool: "orders (customer text)", billingPool: "invoices (about text)"} {
			if _, err := pool.Exec(t.Context(), "create table "+table); err != nil {
				t.Fatal(err)
			}
		}
	})
}
