package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/sidebyside"
)

// effects measures how many messages a second have their effect, each counted once, with one worker and with several.
func effects(ctx context.Context, s *sidebyside.Server, r *results) error {
	for _, workers := range r.plan.workers {
		c, err := effectsOf(ctx, s, r, workers)
		if err != nil {
			return err
		}
		r.effects = append(r.effects, c)
	}
	return nil
}

func effectsOf(ctx context.Context, s *sidebyside.Server, r *results, workers int) (*cell, error) {
	c := &cell{workers: workers}
	var databases []string
	for _, one := range r.in {
		dsn, err := s.Database(ctx, in.Schema, one.Prepare)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
		c.entries, databases = append(c.entries, &entry{name: one.Name}), append(databases, dsn)
	}
	random := rand.New(rand.NewPCG(r.options.Seed, uint64(workers)))
	for range r.plan.rounds {
		for _, i := range random.Perm(len(r.in)) {
			if err := c.entries[i].effects(ctx, r.in[i], databases[i], r.plan, workers); err != nil {
				return nil, fmt.Errorf("%s: %w", r.in[i].Name, err)
			}
		}
	}
	for _, e := range c.entries {
		sidebyside.Say("effects %2d  %-60s %9.1f/s, %d doubled", workers, e.name, sidebyside.SpreadOf(e.perSecond).Median, e.doubled)
	}
	return c, nil
}

// effects gives a contestant one turn: what it is given within a time, and has worked on.
func (e *entry) effects(ctx context.Context, c in.Contestant, dsn string, p plan, workers int) error {
	if err := sidebyside.Execute(ctx, dsn, "truncate effects"); err != nil {
		return err
	}
	if err := sidebyside.Execute(ctx, dsn, "vacuum analyze"); err != nil {
		return err
	}
	pool, err := openPool(ctx, dsn, p.pool)
	if err != nil {
		return err
	}
	defer pool.Close()
	warm := broker.NewSource(p.warm*workers, 0)
	if err := c.Consume(ctx, in.Place{Pool: pool, Source: warm.Open(), Workers: workers, Batch: p.batch}); err != nil {
		return err
	}
	runtime.GC()
	begin := time.Now()
	source := broker.NewSource(1<<30, p.sample)
	if err := c.Consume(ctx, in.Place{Pool: pool, Source: source.Open(), Workers: workers, Batch: p.batch}); err != nil {
		return err
	}
	e.perSecond = append(e.perSecond, float64(source.Made())/time.Since(begin).Seconds())
	made := warm.Made() + source.Made()
	a, err := tally(ctx, dsn, made)
	e.doubled += a.doubled
	switch {
	case err != nil:
		return err
	case a.lost > 0, a.doubled > 0 && !c.Repeats: // nobody was killed
		return fmt.Errorf("of %d messages %d have no effect and %d more than one", made, a.lost, a.doubled)
	}
	return nil
}

// tallied is the outcome of messages that were to have one effect each.
type tallied struct{ lost, doubled int }

func tally(ctx context.Context, dsn string, made int) (tallied, error) {
	had, err := sidebyside.Count(ctx, dsn, "select count(distinct message) from effects")
	if err != nil {
		return tallied{}, err
	}
	doubled, err := sidebyside.Count(ctx, dsn, "select count(*) from (select from effects group by message having count(*) > 1) twice")
	return tallied{made - had, doubled}, err
}
