package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/lab/sidebyside"
)

// stand is a course on a database of its own.
type stand struct {
	course course
	pool   *pgxpool.Pool
	do     func(context.Context, contestant.Call) error
	clock  measure.Clock
}

// poolSize leaves room for a rollback that goes on behind a replay.
const poolSize = 4

func open(ctx context.Context, s *sidebyside.Server, c course) (*stand, error) {
	dsn, err := s.Database(ctx, contestant.Schema, schema.UpAt)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // who was not asked for a second would pay for it
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	do, err := c.open(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return &stand{course: c, pool: pool, do: do, clock: measure.Clock{Admin: s.Admin, Database: config.ConnConfig.Database}}, nil
}

// openWarm opens a stand and makes first runs of one INSERT there: connections are open then, plans are made, and pages were touched,
// which the log has whole once. What it returns makes more of them.
func openWarm(ctx context.Context, s *sidebyside.Server, c course, p plan) (*stand, *measure.Source, error) {
	st, err := open(ctx, s, c)
	if err != nil {
		return nil, nil, err
	}
	source := measure.NewSource(p.seed, contestant.OneInsert, responseSize)
	if _, err := st.take(ctx, source.Template, source.Take(p.calls)); err != nil {
		st.pool.Close()
		return nil, nil, err
	}
	return st, source, nil
}

// openAll gives each course a stand. They are closed by close.
func openAll(ctx context.Context, s *sidebyside.Server, courses []course) (all []*stand, err error) {
	for _, c := range courses {
		st, err := open(ctx, s, c)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

func closeAll(all []*stand) {
	for _, s := range all {
		s.pool.Close()
	}
}

// timing is what some calls took, each.
type timing struct{ p50, client, server float64 } // microseconds

// take makes calls one after the other, one with each key.
func (s *stand) take(ctx context.Context, call contestant.Call, keys []string) (timing, error) {
	before, err := s.clock.Read(ctx)
	if err != nil {
		return timing{}, err
	}
	all := make([]time.Duration, 0, len(keys))
	for _, key := range keys {
		call.Key = key
		begin := time.Now()
		if err := s.do(ctx, call); err != nil {
			return timing{}, fmt.Errorf("%s: %w", s.course.name, err)
		}
		all = append(all, time.Since(begin))
	}
	after, err := s.clock.Read(ctx)
	if err != nil {
		return timing{}, err
	}
	slices.Sort(all)
	used := after.Minus(before)
	each := func(d time.Duration) float64 { return float64(d) / float64(len(keys)) / 1e3 }
	return timing{
		p50: float64(sidebyside.Quantile(all, 0.5)) / 1e3, client: each(used.Client), server: each(used.Server),
	}, nil
}
