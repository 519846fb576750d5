package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
)

// booth is one contestant at work on its database. It is opened for a sample and closed behind it, so that nobody polls in
// another's turn.
type booth struct {
	contestant.Runner
	pool *pgxpool.Pool
	bank *bank.Client
}

// openBooth opens one. All pools are alike; place has the rest.
func openBooth(ctx context.Context, c contestant.Contestant, place contestant.Place, url string, conns int32) (*booth, error) {
	config, err := pgxpool.ParseConfig(place.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	b := &booth{bank: bank.NewClient(url, place.Worker)}
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	place.Pool, place.Bank = b.pool, b.bank
	if b.Runner, err = c.Open(ctx, place); err != nil {
		b.pool.Close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return b, nil
}

// Close ends the contestant and everything that it has used.
func (b *booth) Close() {
	b.Runner.Close()
	b.pool.Close()
	b.bank.Close()
}
