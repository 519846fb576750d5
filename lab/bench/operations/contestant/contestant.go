// Package contestant contains the compared ways to run an operation: it reserves an order in
// Postgres, charges it at a bank, and confirms it in Postgres. Each way is in its own file, with a
// note on its guarantees and its configuration.
package contestant

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/operations/bank"
)

// Place is the environment of a contestant: one process with a database and a bank.
type Place struct {
	DSN    string
	Pool   *pgxpool.Pool
	Bank   *bank.Client
	Worker int // number of this process
	// Fleet says that this process is one of several, and that callers do not wait until their
	// operation ends.
	Fleet bool
	// Patience is the maximum duration of a call to the bank. A contestant that detects a dead
	// process by a timeout uses Patience as the timeout. Zero means the default of the contestant.
	Patience time.Duration
	Cleanup  func(func()) // registers a function that stops the contestant
}

// Do reserves, charges and confirms an order. order is the UUID of the order and also the key of
// the operation. If Place.Fleet is set, Do may return as soon as it is certain that some process
// will complete the operation.
type Do func(ctx context.Context, order string) error

// Contestant is one of the compared ways to run the operation.
type Contestant struct {
	Name string
	// Restarts says that the operations of a dead process resume only after the process is
	// restarted under its old name.
	Restarts bool
	// Parks is a query that counts the parked operations: a person must resolve them, because the
	// outcome of their call is unknown. It is empty if the contestant parks no operations.
	Parks   string
	Prepare func(ctx context.Context, dsn string) error
	Open    func(ctx context.Context, place Place) (Do, error)
}

// All lists the contestants in the order of the report. The first contestant is the base with which
// the others are compared.
var All = []Contestant{Plain, Idem, Phases, DBOS, River}

// Resuming lists the contestants whose operations resume after their process was killed.
var Resuming = []Contestant{Idem, Phases, DBOS, River, IdemOnce}

// Schema creates the table of the business. Each write of an operation is a single statement, so
// that the overhead of a contestant is a large part of the time.
const Schema = `create table orders (id uuid primary key, customer int not null, total bigint not null, charge text, confirmed_at timestamptz)`

const (
	reserveOrder = "insert into orders (id, customer, total) values ($1, 7, 4900)"
	// reserveAgain is for contestants that may execute a step twice.
	reserveAgain = reserveOrder + " on conflict do nothing"
	confirmOrder = "update orders set charge = $2, confirmed_at = now() where id = $1"
)

// reserve is the first step of an operation: it inserts the order.
func reserve(ctx context.Context, tx pgx.Tx, order string) error {
	_, err := tx.Exec(ctx, reserveOrder, order)
	return err
}

// confirm is the last step of an operation: it stores the charge with the order.
func confirm(ctx context.Context, tx pgx.Tx, order, charge string) error {
	_, err := tx.Exec(ctx, confirmOrder, order, charge)
	return err
}

// keyOf returns the key for the call to the bank. It is for contestants that must choose this key
// themselves. The key is the same in every attempt.
func keyOf(order string) string { return "charge " + order }
