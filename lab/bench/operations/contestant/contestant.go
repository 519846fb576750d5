// Package contestant contains the compared ways to reserve, charge and confirm: a write in
// Postgres, a call to a bank, and another write in Postgres. Each is in its own file, with a note
// on its guarantees and its configuration.
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
	// Fleet says that this is one of several processes, and that callers do not wait for the
	// answer.
	Fleet bool
	// Patience is the maximum duration of a call. Contestants that detect a dead process by a
	// timeout set that timeout as short as Patience allows. Zero means their default.
	Patience time.Duration
	Cleanup  func(func()) // registers a function that ends the contestant
}

// Do reserves, charges and confirms an order. The UUID of the order is its key. In a fleet, Do may
// return as soon as it is certain that some process will do so.
type Do func(ctx context.Context, order string) error

// Contestant is one way to run the operation.
type Contestant struct {
	Name string
	// Restarts: a dead process must be restarted under its name before its operations resume.
	Restarts bool
	// Parks is a query that counts the operations left to a person because their outcome is in
	// doubt. It is empty if there are none.
	Parks   string
	Prepare func(ctx context.Context, dsn string) error
	Open    func(ctx context.Context, place Place) (Do, error)
}

// All lists the contestants in the order of the report. The first is the base.
var All = []Contestant{Plain, Idem, Phases, DBOS, River}

// Resuming lists the contestants whose operations resume after their process was killed.
var Resuming = []Contestant{Idem, Phases, DBOS, River, IdemOnce}

// Schema creates the table of the business. A step is a single statement, to make all other costs
// most visible.
const Schema = `create table orders (id uuid primary key, customer int not null, total bigint not null, charge text, confirmed_at timestamptz)`

const (
	reserveOrder = "insert into orders (id, customer, total) values ($1, 7, 4900)"
	// for contestants that may execute a step twice
	reserveAgain = reserveOrder + " on conflict do nothing"
	confirmOrder = "update orders set charge = $2, confirmed_at = now() where id = $1"
)

// reserve is the first step.
func reserve(ctx context.Context, tx pgx.Tx, order string) error {
	_, err := tx.Exec(ctx, reserveOrder, order)
	return err
}

// confirm is the last step.
func confirm(ctx context.Context, tx pgx.Tx, order, charge string) error {
	_, err := tx.Exec(ctx, confirmOrder, order, charge)
	return err
}

// keyOf returns the key for the bank, for contestants that must generate it themselves. It is the
// same in every attempt.
func keyOf(order string) string { return "charge " + order }
