// Package out contains the compared ways to save an order in Postgres and publish a message about
// the order. Each way is in its own file, with a note on its guarantees and its configuration.
package out

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// Sink is the broker, as a publisher sees it. When Publish returns nil, the broker has stored the
// messages with these ids in this order.
type Sink interface {
	Publish(ctx context.Context, ids ...string) error
}

// Place is the environment of a contestant: one process with a database and a broker.
type Place struct {
	Pool *pgxpool.Pool
	Sink Sink
}

// Order is an order of a customer that is to be saved, with a message about the order.
type Order struct {
	ID       string // also the id of the message about the order
	Customer int    // the messages of a customer should be published in order
}

// NewOrder returns an order with a new id.
func NewOrder(customer int) Order { return Order{outbox.NewID(), customer} }

// payload returns the payload of the message, about 200 bytes.
func (o Order) payload() []byte {
	text, _ := json.Marshal(map[string]any{"order": o.ID, "customer": o.Customer, "note": strings.Repeat("a teapot, ", 13)})
	return text
}

// Runner is an open contestant, which can save orders.
type Runner interface {
	// Place saves an order and its message.
	Place(ctx context.Context, order Order) error
}

// Relayer is a Runner whose method Place only stores the order and its message. The method Relay
// publishes the stored messages in the background.
type Relayer interface {
	Runner
	// Relay publishes messages until ctx ends.
	Relay(ctx context.Context) error
}

// Contestant is one way to save an order and publish the message about it.
type Contestant struct {
	Name    string
	Silent  bool // the contestant publishes nothing
	Relays  bool // the Runner that Open returns is a Relayer
	Prepare func(ctx context.Context, dsn string) error
	Open    func(place Place) (Runner, error)
}

// All lists the contestants in the order of the report. The first contestant is the base with which
// the others are compared.
var All = []Contestant{Plain, Idem, ByHand, Watermill, Naive}

// Customers is the number of customers that Schema creates.
const Customers = 1000

// Schema creates the tables of the business. The table "entries" records in which sequence the
// orders of each customer were saved.
const Schema = `create table customers (id int primary key, orders bigint not null) with (fillfactor = 50);
	insert into customers select i, 0 from generate_series(1, 1000) i;
	create table orders (id uuid primary key, customer int not null, total bigint not null);
	create table entries (customer int, n bigint, "order" uuid not null, primary key (customer, n))`

const (
	insertOrder = "insert into orders (id, customer, total) values ($1, $2, 4900)"
	// countOrder locks the customer's row until the commit, so that the orders of a customer get their
	// numbers in the sequence of their commits.
	countOrder = `with counted as (update customers set orders = orders + 1 where id = $2 returning orders)
		insert into entries (customer, n, "order") select $2, orders, $1 from counted`
)

// save sends the statements that save an order, one by one.
func save(ctx context.Context, tx pgx.Tx, order Order) error {
	if _, err := tx.Exec(ctx, insertOrder, order.ID, order.Customer); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, countOrder, order.ID, order.Customer)
	return err
}

const topic = "orders"

// keyOf returns the message key, which is the same for all messages of a customer.
func keyOf(order Order) string { return "customer-" + strconv.Itoa(order.Customer) }
