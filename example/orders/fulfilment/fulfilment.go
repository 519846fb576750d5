// Package fulfilment ships what was ordered: another service, with a database of its own. It is told of orders by the broker, once
// or more often, and ships each once. It tells the shop by a webhook.
package fulfilment

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/example/orders/broker"
	"github.com/idem-go/idem/example/orders/event"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the schema.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return files
}

// Fulfilment is one process of the service.
type Fulfilment struct {
	pool     *pgxpool.Pool
	consumer *idemnats.Consumer
	relay    *outbox.Relay
}

// New returns a Fulfilment that tells the shop at an endpoint. It has a schema already, and the schema of idem.
func New(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, shop webhook.Endpoint) (*Fulfilment, error) {
	f := &Fulfilment{pool: pool}
	source, err := broker.Consumer(ctx, js, "fulfilment")
	if err != nil {
		return nil, err
	}
	f.consumer, err = idemnats.NewConsumer(pool, "fulfilment", source, ship, idemnats.ConsumerConfig{
		// An order that cannot be shipped holds back what else its customer has ordered, and no other's. It is tried until a person
		// has seen to it: there is no bound, because a dead letter would be an order that is paid and forgotten.
		Ordered: true,
		Options: []inbox.Option{inbox.WithMaxAttempts(1000), inbox.WithBackoff(200*time.Millisecond, time.Second)},
	})
	if err != nil {
		return nil, err
	}
	publisher, err := webhook.NewPublisher(webhook.PublisherConfig{
		Endpoint: func(context.Context, string) (webhook.Endpoint, error) { return shop, nil },
		Base:     http.DefaultTransport, // it is our own shop, on this machine: the default reaches public addresses alone
	})
	if err != nil {
		return nil, err
	}
	f.relay = outbox.NewRelay(pool, publisher, outbox.RelayConfig{MaxAttempts: 1000, MinPause: 200 * time.Millisecond, MaxPause: time.Second})
	return f, nil
}

// Run ships, and tells the shop, until ctx ends.
func (f *Fulfilment) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	var consuming, telling error
	parts.Go(func() { consuming = f.consumer.Run(ctx) })
	parts.Go(func() { telling = f.relay.Run(ctx) })
	parts.Wait()
	return errors.Join(consuming, telling)
}

// ship has the effect of an OrderPlaced: a shipment, and the message that says so. Both are committed with the memory of the message,
// and the broker is told after that.
func ship(tx pgx.Tx, m inbox.Message, _ jetstream.Msg) error {
	ctx := context.Background() // a transaction of this size need not be interrupted
	var placed event.OrderPlaced
	if err := json.Unmarshal(m.Payload, &placed); err != nil {
		return err
	}
	var parcel string
	err := tx.QueryRow(ctx, `SELECT name FROM parcels WHERE units >= $1 ORDER BY units LIMIT 1`, placed.Quantity).Scan(&parcel)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("order %d fits into no parcel", placed.OrderID)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO shipments (order_id, customer, parcel) VALUES ($1, $2, $3)`, placed.OrderID, placed.Customer, parcel)
	if err != nil {
		return err
	}
	shipped, err := json.Marshal(event.OrderShipped{OrderID: placed.OrderID, Parcel: parcel})
	if err != nil {
		return err
	}
	return outbox.Add(ctx, tx, outbox.Message{Topic: event.Shop, Key: placed.Customer, Type: "OrderShipped", Payload: shipped})
}
