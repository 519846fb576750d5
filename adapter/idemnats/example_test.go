package idemnats_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The example needs a database and a broker, so go test does not run it as one:
// TestExamplePrintsWhatItSays does.
var (
	pool *pgxpool.Pool
	js   jetstream.JetStream
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 2)

	// The service that places orders runs a relay.
	relay := outbox.NewRelay(pool, idemnats.NewPublisher(js, idemnats.PublisherConfig{}), outbox.RelayConfig{})
	go func() { stopped <- relay.Run(ctx) }()

	// The service that bills them has a consumer of the stream.
	source, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1})
	if err != nil {
		log.Fatal(err)
	}
	handled := make(chan string, 10)
	billing, err := idemnats.NewConsumer(pool, "billing", source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		handled <- m.Type + ": " + m.Key + ", " + string(m.Payload)
		return nil // what is written to tx is written once
	}, idemnats.ConsumerConfig{Ordered: true})
	if err != nil {
		log.Fatal(err)
	}
	go func() { stopped <- billing.Run(ctx) }()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "customer 7", Type: "OrderPlaced", Payload: []byte("a teapot")})
	})
	fmt.Println(err)

	fmt.Println(<-handled)
	cancel()
	fmt.Println(<-stopped, <-stopped)
	// Prints:
	// <nil>
	// OrderPlaced: customer 7, a teapot
	// <nil> <nil>
}
