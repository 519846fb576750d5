// Package operations measures package operation beside what people use instead for work that calls
// out: reserve in Postgres, charge at a bank, confirm in Postgres.
package operations

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
)

// booth is one contestant at work on its database. It is opened for a turn and closed after it, so
// that no contestant polls in the turn of another.
type booth struct {
	contestant.Runner
	pool *pgxpool.Pool
	bank *bank.Client
}

// openBooth opens a contestant at a place, with a bank.
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

// Close ends the contestant and everything that it has used.
func (b *booth) Close() {
	b.Runner.Close()
	b.pool.Close()
	b.bank.Close()
}

// load makes operations from some clients at once until the limit is reached.
func (b *booth) load(ctx context.Context, clients int, limit runner.Limit) (runner.Sample, error) {
	return runner.Load(ctx, clients, limit, func(int) func(context.Context) error {
		order := newOrder()
		return func(ctx context.Context) error { return b.Do(ctx, order) }
	})
}

// newOrder returns a random UUID.
func newOrder() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// verify fails unless each order was reserved, charged once and confirmed.
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

// countOrders counts the orders, and those that are confirmed.
func countOrders(ctx context.Context, dsn string) (orders, confirmed int, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, 0, err
	}
	err = conn.QueryRow(ctx, "select count(*), count(confirmed_at) from orders").Scan(&orders, &confirmed)
	return orders, confirmed, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
