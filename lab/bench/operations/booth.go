// Package operations measures package operation and its alternatives. Each operation reserves an
// order in Postgres, charges it at a bank, and confirms it in Postgres.
package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/outbox"
)

// booth is a contestant that is ready to work on its database. It is open only while it is
// measured, so that it does not poll while another contestant is measured.
type booth struct {
	runner.Cleanups
	do contestant.Do
}

// openBooth opens the contestant c with its own pool and with a client of the bank at url.
func openBooth(ctx context.Context, c contestant.Contestant, place contestant.Place, url string, conns int) (*booth, error) {
	pool, err := runner.Pool(ctx, place.DSN, conns)
	if err != nil {
		return nil, err
	}
	b := &booth{}
	place.Pool, place.Bank, place.Cleanup = pool, bank.NewClient(url, place.Worker), b.Defer
	b.Defer(func() { place.Bank.Close(); pool.Close() })
	if b.do, err = c.Open(ctx, place); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// load runs operations from several simultaneous clients until the limit is reached. The key of
// each operation is a new UUID.
func (b *booth) load(ctx context.Context, clients int, limit runner.Limit) (runner.Sample, error) {
	return runner.Load(ctx, clients, limit, func(int) func(context.Context) error {
		order := outbox.NewID()
		return func(ctx context.Context) error { return b.do(ctx, order) }
	})
}

// verify checks that orders were reserved, charged exactly once and confirmed. want is their
// number.
func verify(ctx context.Context, dsn string, other *bank.Bank, want int) error {
	var orders, confirmed int
	if err := runner.Scan(ctx, dsn, "select count(*), count(confirmed_at) from orders", &orders, &confirmed); err != nil {
		return err
	}
	books := other.Books()
	if orders != want || confirmed != want || books.Orders != want || books.Charges != want {
		return fmt.Errorf("of %d orders %d are reserved, %d charged in %d charges, %d confirmed", want, orders, books.Orders, books.Charges, confirmed)
	}
	return nil
}

// cost measures what an operation costs apart from time: round trips, commits and WAL. A single
// client runs the operations. The figures include background work of the contestant, above all
// polling.
func (p plan) cost(ctx context.Context, s *runner.Server, c contestant.Contestant) (result.Values, error) {
	dsn, err := s.Database(ctx, contestant.Schema, c.Prepare)
	if err != nil {
		return nil, err
	}
	proxy, err := pgproxy.New(dsn)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	other, err := bank.Open(0, false)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	b, err := openBooth(ctx, c, contestant.Place{DSN: proxy.DSN()}, other.URL, poolSize)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return s.Cost(ctx, proxy, "", p.ops/10+1, p.ops, func(operations int) error {
		_, err := b.load(ctx, 1, runner.Limit{Calls: operations})
		return err
	})
}
