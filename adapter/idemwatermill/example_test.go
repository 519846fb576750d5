package idemwatermill_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/outbox"
)

// The example needs a database, so go test does not run it as one: TestExamplePrintsWhatItSays
// does.
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
