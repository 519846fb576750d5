// Package fulfilment ships orders. It is a separate service with its own database. The broker
// delivers each order at least once, and fulfilment ships it exactly once. It notifies the shop
// with a webhook.
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

// Migrations returns the migrations of fulfilment's schema.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // cannot happen: the directory is embedded
	}
	return files
}

// Fulfilment is one process of the service fulfilment.
type Fulfilment struct {
	pool     *pgxpool.Pool
	consumer *idemnats.Consumer
	relay    *outbox.Relay
}

// New returns a Fulfilment that sends its webhooks to shop. The database must already have the
// schemas of fulfilment and idem.
func New(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, shop webhook.Endpoint) (*Fulfilment, error) {
	f := &Fulfilment{pool: pool}
	source, err := broker.Consumer(ctx, js, "fulfilment")
	if err != nil {
		return nil, err
	}
	f.consumer, err = idemnats.NewConsumer(pool, "fulfilment", source, ship, idemnats.ConsumerConfig{
		// If an order cannot be shipped, only the later orders of its customer wait. The order is
		// retried until a person fixes the problem. The maximum of attempts is high, because a dead
		// letter would be an order that was paid and forgotten.
		Ordered: true,
		Options: []inbox.Option{inbox.WithMaxAttempts(1000), inbox.WithBackoff(200*time.Millisecond, time.Second)},
	})
	if err != nil {
		return nil, err
	}
	publisher, err := webhook.NewPublisher(webhook.PublisherConfig{
		Endpoint: func(context.Context, string) (webhook.Endpoint, error) { return shop, nil },
		// The shop runs on this machine. Without Base, the Publisher would refuse the address of
		// the shop, because the address is not public.
		Base: http.DefaultTransport,
	})
	if err != nil {
		return nil, err
	}
	f.relay = outbox.NewRelay(pool, publisher, outbox.RelayConfig{MaxAttempts: 1000, MinPause: 200 * time.Millisecond, MaxPause: time.Second})
	return f, nil
}

// Run consumes orders and sends webhooks until ctx ends. It returns the errors of both.
func (f *Fulfilment) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	var consuming, relaying error
	parts.Go(func() { consuming = f.consumer.Run(ctx) })
	parts.Go(func() { relaying = f.relay.Run(ctx) })
	parts.Wait()
	return errors.Join(consuming, relaying)
}

// ship handles an OrderPlaced message: it inserts the shipment and adds an OrderShipped message to
// the outbox. Package inbox commits both together with the record of the handled message. Then
// package idemnats acknowledges the message to the broker.
func ship(tx pgx.Tx, m inbox.Message, _ jetstream.Msg) error {
	ctx := context.Background() // the transaction is short, so it may finish after the consumer is stopped
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
