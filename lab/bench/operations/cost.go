package main

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/sidebyside"
)

// cost is what one operation takes apart from time, with everything that a contestant does beside while it is at work.
type cost struct {
	name         string
	trips        float64 // round trips to Postgres
	commits      float64 // that are in the log, negative: not known
	transactions float64 // as pg_stat_database counts them, those that only read as well
	wal          float64 // bytes
}

// costs counts what operations of a single client cost, one after the other, through a proxy that counts round trips.
func costs(ctx context.Context, s *server, r *results) error {
	p := r.plan
	for _, c := range r.contestants {
		found, err := costOf(ctx, s, p, c)
		if err != nil {
			return fmt.Errorf("cost of %s: %w", c.Name, err)
		}
		sidebyside.Say("%-24s %5.1f round trips, %5.2f commits, %5.2f transactions, %6.0f bytes of WAL", c.Name, found.trips, found.commits, found.transactions, found.wal)
		r.Costs = append(r.Costs, found)
	}
	return nil
}

func costOf(ctx context.Context, s *server, p plan, c contestant.Contestant) (found cost, err error) {
	dsn, err := s.database(ctx, c)
	if err != nil {
		return found, err
	}
	proxy, err := pgproxy.New(dsn)
	if err != nil {
		return found, err
	}
	defer proxy.Close()
	other, err := bank.Open(0, false)
	if err != nil {
		return found, err
	}
	defer other.Close()
	// Statistics are complete when the sessions are over: what is counted is that of a whole life with the operations, less that
	// of one with a tenth of them.
	var transactions [2]int64
	few, many := p.ops/10+1, p.ops+p.ops/10+1
	for i, ops := range []int{few, many} {
		before, err := s.transactions(ctx, dsn)
		if err != nil {
			return found, err
		}
		if err := oneLife(ctx, s, c, contestant.Place{DSN: proxy.DSN()}, other.URL, p, few, ops-few, proxy, &found); err != nil {
			return found, err
		}
		after, err := s.transactions(ctx, dsn)
		if err != nil {
			return found, err
		}
		transactions[i] = after - before
	}
	found.name = c.Name
	found.transactions = float64(transactions[1]-transactions[0]) / float64(p.ops)
	return found, nil
}

// oneLife opens a contestant, warms it up with some operations, and counts the others.
func oneLife(ctx context.Context, s *server, c contestant.Contestant, place contestant.Place, url string, p plan, warm, counted int, proxy *pgproxy.Proxy, found *cost) error {
	b, err := openBooth(ctx, c, place, url, p.pool)
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := takeSample(ctx, b, 1, 0, warm); err != nil || counted == 0 {
		return err
	}
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	// The pages that are written are in the log as a whole once after a checkpoint: touch them first.
	if _, err := takeSample(ctx, b, 1, 0, min(warm, counted)); err != nil {
		return err
	}
	begin, err := s.Position(ctx)
	if err != nil {
		return err
	}
	proxy.ResetTally()
	if _, err := takeSample(ctx, b, 1, 0, counted); err != nil {
		return err
	}
	trips := proxy.ResetTally().Turns
	end, err := s.Position(ctx)
	if err != nil {
		return err
	}
	found.trips = float64(trips) / float64(counted)
	found.commits, found.wal, err = s.Logged(ctx, begin, end)
	found.wal /= float64(counted)
	found.commits /= float64(counted)
	return err
}

// statisticsLimit is how long is waited for sessions to be over. Some stay for a while, and do nothing any more.
const statisticsLimit = time.Second

// transactions is how many of a database pg_stat_database has counted, once nobody is connected to it.
func (s *server) transactions(ctx context.Context, dsn string) (n int64, err error) {
	name, err := databaseOf(dsn)
	if err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(statisticsLimit); ; {
		var sessions int
		err := s.Admin.QueryRow(ctx, "select (select count(*) from pg_stat_activity where datname = $1), xact_commit from pg_stat_database where datname = $1", name).Scan(&sessions, &n)
		if err != nil || sessions == 0 || time.Now().After(deadline) {
			return n, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
