package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/sidebyside"
)

// cost is what one order takes apart from time, while nobody relays.
type cost struct {
	name  string
	trips float64 // round trips to Postgres
	wal   float64 // bytes
}

// costs counts what orders of a single client cost, one after the other, through a proxy that counts round trips.
func costs(ctx context.Context, s *sidebyside.Server, r *results) error {
	for _, c := range r.out {
		found, err := costOf(ctx, s, r.plan, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		sidebyside.Say("%-28s %5.2f round trips, %6.0f bytes of WAL", c.Name, found.trips, found.wal)
		r.costs = append(r.costs, found)
	}
	return nil
}

func costOf(ctx context.Context, s *sidebyside.Server, p plan, c out.Contestant) (found cost, err error) {
	dsn, err := s.Database(ctx, out.Schema, c.Prepare)
	if err != nil {
		return found, err
	}
	proxy, err := pgproxy.New(dsn)
	if err != nil {
		return found, err
	}
	defer proxy.Close()
	b, err := openBooth(ctx, c, proxy.DSN(), 1)
	if err != nil {
		return found, err
	}
	defer b.Close()
	place := func(orders int) error {
		_, err := takeSample(ctx, b, 1, out.Customers, 0, orders)
		return err
	}
	if err := place(p.warm); err != nil {
		return found, err
	}
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return found, err
	}
	// The pages that are written are in the log as a whole once after a checkpoint: touch them first.
	if err := sidebyside.Execute(ctx, dsn, "update customers set orders = orders"); err != nil {
		return found, err
	}
	if err := place(p.warm); err != nil {
		return found, err
	}
	begin, err := s.Position(ctx)
	if err != nil {
		return found, err
	}
	proxy.ResetTally()
	if err := place(p.ops); err != nil {
		return found, err
	}
	trips := proxy.ResetTally().Turns
	end, err := s.Position(ctx)
	if err != nil {
		return found, err
	}
	_, wal, err := s.Logged(ctx, begin, end)
	return cost{name: c.Name, trips: float64(trips) / float64(p.ops), wal: wal / float64(p.ops)}, err
}
