// Package shop is a service whose tenants are spread over clusters. It takes orders, paid by card
// or on account, and writes a bill for each.
package shop

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/outbox"
)

// Schema makes the tables.
//
// Schema creates the tables of the shop.
//
//go:embed schema.sql
var Schema string

// Tables are the tables that move with a tenant.
var Tables = []fleet.Table{{Name: "public.customers", Tenant: "tenant"}, {Name: "public.orders", Tenant: "tenant"}, {Name: "public.bills", Tenant: "tenant"}}

// Order is the body of a request. Request is an id that the client chooses. The books use it to
// find lost and doubled orders.
type Order struct {
	Tenant   string `json:"tenant"`
	Customer string `json:"customer"`
	Request  string `json:"request"`
	Cents    int64  `json:"cents"`
	Card     string `json:"card,omitempty"`
}

// place inserts an order and the message about it. It locks the row of the customer until the
// commit, so that the messages of a customer are published in the order of their numbers. place
// does not check the home of the tenant: the triggers do.
func place(ctx context.Context, tx pgx.Tx, id string, o Order, charge string) error {
	var number int
	err := tx.QueryRow(ctx, `INSERT INTO customers (tenant, name, orders) VALUES ($1, $2, 1)
		ON CONFLICT (tenant, name) DO UPDATE SET orders = customers.orders + 1 RETURNING orders`, o.Tenant, o.Customer).Scan(&number)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO orders (tenant, id, customer, number, request, cents, charge) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		o.Tenant, id, o.Customer, number, o.Request, o.Cents, charge)
	if err != nil {
		return err
	}
	placed, err := json.Marshal(Placed{o.Tenant, o.Customer, number})
	if err != nil {
		return fmt.Errorf("shop: %w", err)
	}
	return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: idem.Scope(o.Tenant, o.Customer), Type: "OrderPlaced", Payload: placed})
}

// Placed is the message about an order.
type Placed struct {
	Tenant   string `json:"tenant"`
	Customer string `json:"customer"`
	Number   int    `json:"number"`
}
