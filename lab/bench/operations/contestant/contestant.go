// Package contestant holds the ways to reserve, charge and confirm that the benchmark compares: a
// write in Postgres, a call of a bank, another write in Postgres. Each is in a file of its own,
// with a note of what it promises and how it is set up.
package contestant

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/operations/bank"
)

// Place is where a contestant works: one process, with a database and a bank.
type Place struct {
	DSN    string
	Pool   *pgxpool.Pool
	Bank   *bank.Client
	Worker int // which process this is
	// Fleet says that this is one process of several, whose callers do not wait for the answer.
	Fleet bool
	// Patience is for how long a call may take at most. Whoever needs a timeout to see that a
	// process is dead has it set as short as that allows. Zero: as it is by default.
	Patience time.Duration
}

// Runner is a contestant at work. An order is named by a UUID, which is its key.
type Runner interface {
	// Do reserves, charges and confirms an order. In a fleet it may return as soon as somebody is
	// bound to do so.
	Do(ctx context.Context, order string) error
	Close()
}

// Contestant is one way to do it.
type Contestant struct {
	Name     string
	Restarts bool   // a dead process has to be started again, under its name, so that its operations go on
	Parks    string // a query that counts what is left to a person because its outcome is unknown; empty: nothing is
	Prepare  func(ctx context.Context, dsn string) error
	Open     func(ctx context.Context, place Place) (Runner, error)
}

// All returns the contestants in the order of the report. The first is the base.
func All() []Contestant {
	return []Contestant{Plain(), Idem(), Phases(), DBOS(), River(), RiverInOne(), Workflows()}
}

// Resuming returns the contestants whose operations go on after their process was killed.
func Resuming() []Contestant {
	return []Contestant{Idem(), Phases(), DBOS(), River(), Workflows(), IdemOnce()}
}

// Named returns the contestant of a name.
func Named(name string) (Contestant, bool) {
	for _, c := range append(All(), IdemOnce()) {
		if c.Name == name {
			return c, true
		}
	}
	return Contestant{}, false
}

// Schema is what the business writes to. One statement is all that a step does, where the cost of
// everything else shows most.
const Schema = `create table orders (id uuid primary key, customer int not null, total bigint not null, charge text, confirmed_at timestamptz)`

const (
	reserveOrder = "insert into orders (id, customer, total) values ($1, 7, 4900)"
	// For contestants that may execute a step twice.
	reserveAgain = reserveOrder + " on conflict do nothing"
	confirmOrder = "update orders set charge = $2, confirmed_at = now() where id = $1"
)

// reserve is the first step.
func reserve(ctx context.Context, tx pgx.Tx, order string) error {
	_, err := tx.Exec(ctx, reserveOrder, order)
	return err
}

// confirm is the last one.
func confirm(ctx context.Context, tx pgx.Tx, order, charge string) error {
	_, err := tx.Exec(ctx, confirmOrder, order, charge)
	return err
}

// keyOf is the key for the bank, for those who have to make one themselves: the same in every
// attempt.
func keyOf(order string) string { return "charge " + order }
