// Package operations measures package operation and its alternatives. The operation reserves in
// Postgres, charges at a bank, and confirms in Postgres.
package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/outbox"
)

// booth is a contestant that is ready to work on its database. It is opened for one turn and then
// closed, so that no contestant polls during the turn of another.
type booth struct {
	contestant.Runner
	pool *pgxpool.Pool
	bank *bank.Client
}

// openBooth opens a contestant with its own pool and a client of the bank at url.
func openBooth(ctx context.Context, c contestant.Contestant, place contestant.Place, url string, conns int) (*booth, error) {
	pool, err := runner.Pool(ctx, place.DSN, conns)
	if err != nil {
		return nil, err
	}
	b := &booth{pool: pool, bank: bank.NewClient(url, place.Worker)}
	place.Pool, place.Bank = b.pool, b.bank
	if b.Runner, err = c.Open(ctx, place); err != nil {
		b.pool.Close()
		return nil, err
	}
	return b, nil
}

// Close closes the contestant, its pool and its client.
func (b *booth) Close() {
	b.Runner.Close()
	b.pool.Close()
	b.bank.Close()
}

// load runs operations from several clients until the limit is reached.
func (b *booth) load(ctx context.Context, clients int, limit runner.Limit) (runner.Sample, error) {
	return runner.Load(ctx, clients, limit, func(int) func(context.Context) error {
		order := newOrder()
		return func(ctx context.Context) error { return b.Do(ctx, order) }
	})
}

// newOrder returns a random UUID.
func newOrder() string { return outbox.NewID() }

// verify returns an error unless want orders were reserved, charged exactly once and confirmed.
func verify(ctx context.Context, dsn string, other *bank.Bank, want int) error {
	orders, confirmed, err := countOrders(ctx, dsn)
	if err != nil {
		return err
	}
	books := other.Books()
	if orders != want || confirmed != want || books.Orders != want || books.Charges != want {
		return fmt.Errorf("of %d orders %d are reserved, %d charged in %d charges, %d confirmed", want, orders, books.Orders, books.Charges, confirmed)
	}
	return nil
}

// countOrders returns the number of orders and of confirmed orders.
func countOrders(ctx context.Context, dsn string) (orders, confirmed int, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, 0, err
	}
	err = conn.QueryRow(ctx, "select count(*), count(confirmed_at) from orders").Scan(&orders, &confirmed)
	return orders, confirmed, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
