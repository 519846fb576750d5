package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
)

// The example needs a database, so go test does not run it as one: TestExamplePrintsWhatItSays
// does.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
)

// delivery is a delivery of the client of a broker.
type delivery struct {
	topic, id string
	body      []byte
	delivered int
}

func Example() {
	fetched := []delivery{{"orders", "o-1", []byte("10"), 1}, {"orders", "o-2", []byte("20"), 1}, {"orders", "o-1", []byte("10"), 2}}
	var messages []inbox.Message
	for _, d := range fetched {
		messages = append(messages, inbox.Message{Source: d.topic, ID: d.id, Payload: d.body, Deliveries: d.delivered})
	}
	outcomes, err := inbox.Batch(ctx, pool, "billing", messages, func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(ctx, "insert into invoices (amount) values ($1::text::int)", m.Payload)
		return err
	})
	if err != nil {
		fmt.Println("the database is unavailable; messages with Retry come again:", err)
	}
	for i, o := range outcomes {
		switch o.State {
		case inbox.Retry:
			fmt.Println(fetched[i].id, "comes again at", o.RetryAt, "because of", o.Err)
		default: // Done, Duplicate and Dead
			fmt.Println(fetched[i].id, "is", o.State, "and acknowledged")
		}
	}
	// Prints:
	// o-1 is done and acknowledged
	// o-2 is done and acknowledged
	// o-1 is duplicate and acknowledged
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		if _, err := pool.Exec(ctx, "create table invoices (amount int)"); err != nil {
			t.Fatal(err)
		}
	})
}
