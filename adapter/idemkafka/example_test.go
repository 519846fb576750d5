package idemkafka_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The example needs a database and brokers, so go test does not run it as one:
// TestExamplePrintsWhatItSays does.
var (
	pool    *pgxpool.Pool
	brokers []string
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 2)

	// The service that places orders runs a relay.
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerLinger(0))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	publisher, err := idemkafka.NewPublisher(client, idemkafka.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	relay := outbox.NewRelay(pool, publisher, outbox.RelayConfig{})
	go func() { stopped <- relay.Run(ctx) }()

	// The service that bills them is a consumer of the topic.
	handled := make(chan string, 10)
	billing, err := idemkafka.NewConsumer(pool, "billing", func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
		handled <- m.Type + ": " + m.Key + ", " + string(m.Payload)
		return nil // what is written to tx is written once
	}, idemkafka.ConsumerConfig{}, kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("orders"))
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
