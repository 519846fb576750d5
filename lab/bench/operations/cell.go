package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// cell is what all contestants did in one setting, in rounds in which everybody had a turn.
type cell struct {
	setting setting
	entries []*entry
}

// entry is one contestant in a cell, with a figure for each round.
type entry struct {
	name      string
	latencies []time.Duration // of all rounds
	p50       []float64       // seconds
	perSecond []float64
}

func cells(ctx context.Context, s *server, r *results) error {
	p := r.plan
	random := rand.New(rand.NewPCG(r.options.Seed, 1))
	var databases []string
	for _, c := range r.contestants {
		dsn, err := s.database(ctx, c)
		if err != nil {
			return err
		}
		databases = append(databases, dsn)
	}
	for _, setting := range p.cells {
		c, err := measureCell(ctx, p, r.contestants, databases, setting, random)
		if err != nil {
			return fmt.Errorf("%v: %w", setting, err)
		}
		r.Cells = append(r.Cells, c)
	}
	return nil
}

func measureCell(ctx context.Context, p plan, contestants []contestant.Contestant, databases []string, setting setting, random *rand.Rand) (*cell, error) {
	c := &cell{setting: setting}
	for _, one := range contestants {
		c.entries = append(c.entries, &entry{name: one.Name})
	}
	for range p.rounds {
		for _, i := range random.Perm(len(contestants)) {
			if err := c.entries[i].sample(ctx, p, contestants[i], databases[i], setting); err != nil {
				return nil, fmt.Errorf("%s: %w", contestants[i].Name, err)
			}
		}
	}
	for _, e := range c.entries {
		slices.Sort(e.latencies)
		sidebyside.Say("%-28v %-24s p50 %8.2f ms, p99 %8.2f ms, %7.1f/s", setting, e.name, sidebyside.Milliseconds(sidebyside.Quantile(e.latencies, 0.5)), sidebyside.Milliseconds(sidebyside.Quantile(e.latencies, 0.99)), sidebyside.SpreadOf(e.perSecond).Median)
	}
	return c, nil
}

// sample gives a contestant one turn, and then compares its effects with the bank's books.
func (e *entry) sample(ctx context.Context, p plan, c contestant.Contestant, dsn string, setting setting) error {
	if err := sidebyside.Execute(ctx, dsn, "truncate orders"); err != nil {
		return err
	}
	if err := sidebyside.Execute(ctx, dsn, "vacuum analyze"); err != nil {
		return err
	}
	other, err := bank.Open(setting.delay, false)
	if err != nil {
		return err
	}
	defer other.Close()
	b, err := openBooth(ctx, c, contestant.Place{DSN: dsn}, other.URL, p.pool)
	if err != nil {
		return err
	}
	defer b.Close()
	warm, err := takeSample(ctx, b, setting.clients, p.warm, p.warmUp(setting.clients))
	if err != nil {
		return err
	}
	runtime.GC()
	t, err := takeSample(ctx, b, setting.clients, p.sample, 0)
	if err != nil {
		return err
	}
	e.latencies = append(e.latencies, t.latencies...)
	e.p50 = append(e.p50, sidebyside.Quantile(t.latencies, 0.5).Seconds())
	e.perSecond = append(e.perSecond, t.perSecond())
	return verify(ctx, dsn, other, len(warm.latencies)+len(t.latencies))
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

// countOrders counts orders, and those that are confirmed.
func countOrders(ctx context.Context, dsn string) (orders, confirmed int, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "select count(*), count(confirmed_at) from orders").Scan(&orders, &confirmed)
	return orders, confirmed, err
}

// databaseOf is the name in an address.
func databaseOf(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return config.Database, nil
}
