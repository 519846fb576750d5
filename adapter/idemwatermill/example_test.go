package idemwatermill_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

// The example needs a database, so go test does not run it as one: TestExamplePrintsWhatItSays does.
var pool *pgxpool.Pool

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	broker := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}) // any that Watermill knows; this one forgets

	// In each process that bills.
	billed := make(chan string)
	handle := func(tx pgx.Tx, msg *message.Message) error {
		customer := msg.Metadata.Get(idemwatermill.MetadataKey)
		_, err := tx.Exec(ctx, `INSERT INTO invoices (customer, body) VALUES ($1, $2)`, customer, string(msg.Payload))
		billed <- msg.Metadata.Get(idemwatermill.MetadataType) + " of " + customer + ": " + string(msg.Payload)
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	router.AddConsumerHandler("billing", "orders", broker, idemwatermill.Handler(pool, "billing", handle, idemwatermill.HandlerConfig{}))
	go router.Run(ctx)
	<-router.Running()

	// In each process of the shop.
	relay := outbox.NewRelay(pool, idemwatermill.NewPublisher(broker, idemwatermill.PublisherConfig{}), outbox.RelayConfig{})
	go relay.Run(ctx)

	// Where an order is placed, in the transaction that stores it.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "customer 7", Type: "OrderPlaced", Payload: []byte("a teapot")})
	})
	fmt.Println(err)
	fmt.Println(<-billed)
	// Prints:
	// <nil>
	// OrderPlaced of customer 7: a teapot
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pool = pgtest.New(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE invoices (customer text, body text)`); err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(source), "// Prints:\n")
	want, _, _ = strings.Cut(want, "}\n")
	want = strings.ReplaceAll(want, "\t// ", "")
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(printed(t, Example))); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
}

// printed returns what f prints.
func printed(t *testing.T, f func()) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = in
	f()
	os.Stdout = stdout
	in.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
