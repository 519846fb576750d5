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

// addOrderPlaced adds an OrderPlaced message to the outbox, in tx. Fulfilment receives a message
// for every committed order and for no other. The key of the message is the tenant, so that the
// orders of a tenant are sent in order.
func addOrderPlaced(ctx context.Context, tx pgx.Tx, tenant string, placed order) error {
	body, err := json.Marshal(event.OrderPlaced{OrderID: placed.ID, Customer: tenant, SKU: placed.SKU, Quantity: placed.Quantity})
	if err != nil {
		return err
	}
	return outbox.Add(ctx, tx, outbox.Message{Topic: event.Orders, Key: tenant, Type: "OrderPlaced", Payload: body})
}

// newShipped returns the handler for fulfilment's webhook. It rejects requests without a valid
// signature, and handles each event once even if it is delivered several times.
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
