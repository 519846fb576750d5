// Package out holds the ways to save an order in Postgres and to publish a message about it that
// the benchmark compares. Each is in a file of its own, with a note of what it promises and how it
// is set up.
package out

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// Sink is the broker. Messages are known by their ids, and are there in this order when it has
// answered.
type Sink interface {
	Publish(ctx context.Context, ids ...string) error
}

// Place is where a contestant works: one process, with a database and a broker.
type Place struct {
	Pool *pgxpool.Pool
	Sink Sink
	// Patience is how long a message may take, for contestants that learn by a timeout that a
	// process is dead. Zero means their default.
	Patience time.Duration
}

// Order is what is saved, with a message about it.
type Order struct {
	ID       string // of its message as well
	Customer int    // whose messages are published in order
}

// NewOrder returns an order with a new id.
func NewOrder(customer int) Order { return Order{outbox.NewID(), customer} }

// payload returns the payload of the message, of 200 bytes or a little more.
func (o Order) payload() []byte {
	text, _ := json.Marshal(map[string]any{"order": o.ID, "customer": o.Customer, "note": strings.Repeat("a teapot, ", 13)})
	return text
}

// Runner is a contestant at work.
type Runner interface {
	// Place saves an order and its message.
	Place(ctx context.Context, order Order) error
}

// Relayer is a Runner whose messages leave later.
type Relayer interface {
	Runner
	// Stock adds the messages of orders alone, in one transaction: what is found after the broker
	// was away.
	Stock(ctx context.Context, orders []Order) error
	// Relay publishes what there is, until ctx ends.
	Relay(ctx context.Context) error
}

// Contestant is one way to do it.
type Contestant struct {
	Name    string
	Silent  bool // it publishes nothing
	Relays  bool // its messages leave later: Open returns a Relayer
	Piped   bool // it sends its statements in one batch
	Prepare func(ctx context.Context, dsn string) error
	Open    func(place Place) (Runner, error)
}

// All returns the contestants in the order of the report. The first is the base.
func All() []Contestant {
	return []Contestant{Plain(), Idem(), ByHand(), Watermill(), River(), Naive(), PlainPiped(), IdemPiped()}
}

// Named returns the contestant of a name.
func Named(name string) (Contestant, bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Contestant{}, false
}

// Customers is how many there are.
const Customers = 1000

// Schema is what the business writes to. Entries say in which order the orders of a customer were
// made.
const Schema = `create table customers (id int primary key, orders bigint not null) with (fillfactor = 50);
	insert into customers select i, 0 from generate_series(1, 1000) i;
	create table orders (id uuid primary key, customer int not null, total bigint not null);
	create table entries (customer int, n bigint, "order" uuid not null, primary key (customer, n))`

const (
	insertOrder = "insert into orders (id, customer, total) values ($1, $2, 4900)"
	// It holds the row of the customer from here on.
	countOrder = `with counted as (update customers set orders = orders + 1 where id = $2 returning orders)
		insert into entries (customer, n, "order") select $2, orders, $1 from counted`
)

// save is the business, one statement after the other.
func save(ctx context.Context, tx pgx.Tx, order Order) error {
	if _, err := tx.Exec(ctx, insertOrder, order.ID, order.Customer); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, countOrder, order.ID, order.Customer)
	return err
}

// queue is the business as a part of a batch.
func queue(batch *pgx.Batch, order Order) {
	batch.Queue(insertOrder, order.ID, order.Customer)
	batch.Queue(countOrder, order.ID, order.Customer)
}

// quiet is a logger for libraries that would warn of what is only slow.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const topic = "orders"

// keyOf is what the messages of one customer have in common.
func keyOf(order Order) string { return "customer-" + strconv.Itoa(order.Customer) }
