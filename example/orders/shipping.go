package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/orders/event"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// tell adds OrderPlaced to the outbox, as a part of tx: fulfilment is told of each order that is committed, and of no other. The orders
// of a tenant leave in their order.
func tell(ctx context.Context, tx pgx.Tx, tenant string, placed order) error {
	body, err := json.Marshal(event.OrderPlaced{OrderID: placed.ID, Customer: tenant, SKU: placed.SKU, Quantity: placed.Quantity})
	if err != nil {
		return err
	}
	return outbox.Add(ctx, tx, outbox.Message{Topic: event.Orders, Key: tenant, Type: "OrderPlaced", Payload: body})
}

// newShipped returns the handler of fulfilment's webhook. It believes what is signed with the secret, and takes each event in once,
// however often it is delivered.
func newShipped(pool *pgxpool.Pool, secret string) (http.Handler, error) {
	verifier, err := webhook.StandardWebhooks(secret)
	if err != nil {
		return nil, err
	}
	config := webhook.HandlerConfig{Consumer: "orders", Source: "fulfilment", Verifier: verifier}
	return webhook.NewHandler(pool, config, func(tx pgx.Tx, r *http.Request, m inbox.Message) error {
		var shipped event.OrderShipped
		if err := json.Unmarshal(m.Payload, &shipped); err != nil {
			return err
		}
		_, err := tx.Exec(r.Context(), `INSERT INTO shipped (order_id, parcel) VALUES ($1, $2)`, shipped.OrderID, shipped.Parcel)
		if err != nil {
			return fmt.Errorf("insert shipped: %w", err)
		}
		return nil
	})
}
