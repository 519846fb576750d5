package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/sidebyside"
)

// outCell gives each of some contestants a database of its own, and a turn in each round.
func outCell(ctx context.Context, s *sidebyside.Server, r *results, what string, chosen func(out.Contestant) bool,
	sample func(ctx context.Context, e *entry, c out.Contestant, dsn string) error) ([]*entry, error) {
	var contestants []out.Contestant
	var entries []*entry
	var databases []string
	for _, c := range r.out {
		if !chosen(c) {
			continue
		}
		dsn, err := s.Database(ctx, out.Schema, c.Prepare)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		contestants, entries, databases = append(contestants, c), append(entries, &entry{name: c.Name}), append(databases, dsn)
	}
	random := rand.New(rand.NewPCG(r.options.Seed, uint64(len(what))))
	for range r.plan.rounds {
		for _, i := range random.Perm(len(contestants)) {
			if err := fresh(ctx, databases[i]); err != nil {
				return nil, err
			}
			if err := sample(ctx, entries[i], contestants[i], databases[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", contestants[i].Name, err)
			}
		}
	}
	for _, e := range entries {
		slices.Sort(e.latencies)
		sidebyside.Say("%-10s %-28s p50 %8.2f ms, p99 %8.2f ms, %9.1f/s, %+v", what, e.name, milliseconds(e, 0.5), milliseconds(e, 0.99), sidebyside.SpreadOf(e.perSecond).Median, e.account)
	}
	return entries, nil
}

func milliseconds(e *entry, q float64) float64 {
	return sidebyside.Milliseconds(sidebyside.Quantile(e.latencies, q))
}

func (e *entry) add(latencies []time.Duration) {
	e.latencies = append(e.latencies, latencies...)
	e.p50 = append(e.p50, sidebyside.Quantile(latencies, 0.5).Seconds())
}

func (e *entry) count(a broker.Account) {
	e.account.Committed += a.Committed
	e.account.Twice += a.Twice
	e.account.Inverted += a.Inverted
}

// saving measures what telling costs the transaction: one client, and nobody relays.
func saving(ctx context.Context, s *sidebyside.Server, r *results) (err error) {
	all := func(out.Contestant) bool { return true }
	r.saving, err = outCell(ctx, s, r, "saving", all, func(ctx context.Context, e *entry, c out.Contestant, dsn string) error {
		b, err := openBooth(ctx, c, dsn, r.plan.pool)
		if err != nil {
			return err
		}
		defer b.Close()
		warm, err := takeSample(ctx, b, 1, out.Customers, 0, r.plan.warm)
		if err != nil {
			return err
		}
		runtime.GC()
		t, err := takeSample(ctx, b, 1, out.Customers, r.plan.sample, 0)
		if err != nil {
			return err
		}
		e.add(t.latencies)
		e.perSecond = append(e.perSecond, float64(len(t.latencies))/t.elapsed.Seconds())
		saved, err := sidebyside.Count(ctx, dsn, "select count(*) from entries")
		if want := len(warm.latencies) + len(t.latencies); err == nil && saved != want {
			err = fmt.Errorf("%d of %d orders are saved", saved, want)
		}
		return err
	})
	return err
}

// through measures how many messages go all the way: several clients, and a relay in the same process, until all is published.
func through(ctx context.Context, s *sidebyside.Server, r *results) (err error) {
	r.through, err = outCell(ctx, s, r, "through", apart, func(ctx context.Context, e *entry, c out.Contestant, dsn string) error {
		b, err := openBooth(ctx, c, dsn, r.plan.pool)
		if err != nil {
			return err
		}
		b.relay()
		if err := e.through(ctx, b, c, dsn, r.plan); err != nil {
			return closing(b, err)
		}
		return b.Close()
	})
	return err
}

func (e *entry) through(ctx context.Context, b *booth, c out.Contestant, dsn string, p plan) error {
	warm, err := takeSample(ctx, b, p.clients, p.customers, 0, p.warm)
	if err != nil {
		return err
	}
	if !c.Silent {
		if err := b.published(ctx, len(warm.latencies)); err != nil {
			return err
		}
	}
	runtime.GC()
	begin := time.Now()
	t, err := takeSample(ctx, b, p.clients, p.customers, p.sample, 0)
	if err != nil {
		return err
	}
	if !c.Silent {
		if err := b.published(ctx, len(warm.latencies)+len(t.latencies)); err != nil {
			return err
		}
	}
	e.perSecond = append(e.perSecond, float64(len(t.latencies))/time.Since(begin).Seconds())
	e.add(t.latencies)
	if c.Silent {
		return nil
	}
	a, err := b.audit(ctx, dsn)
	e.count(a)
	return err
}

// lags measures how long after the commit a message is published, at a pace that nobody has to struggle with.
func lags(ctx context.Context, s *sidebyside.Server, r *results) (err error) {
	r.lag, err = outCell(ctx, s, r, "lag", relays, func(ctx context.Context, e *entry, c out.Contestant, dsn string) error {
		b, err := openBooth(ctx, c, dsn, r.plan.pool)
		if err != nil {
			return err
		}
		b.relay()
		if err := e.lag(ctx, b, dsn, r.plan); err != nil {
			return closing(b, err)
		}
		return b.Close()
	})
	return err
}

func (e *entry) lag(ctx context.Context, b *booth, dsn string, p plan) error {
	warm, err := takeSample(ctx, b, 1, out.Customers, 0, p.warm)
	if err != nil {
		return err
	}
	if err := b.published(ctx, len(warm.latencies)); err != nil {
		return err
	}
	runtime.GC()
	t, err := paced(ctx, b, p.pace, p.pacing)
	if err != nil {
		return err
	}
	if err := b.published(ctx, len(warm.latencies)+len(t.committed)); err != nil {
		return err
	}
	var all []time.Duration
	for id, committed := range t.committed {
		at, _ := b.sink.At(id)
		all = append(all, max(0, at.Sub(committed))) // the relay may be sooner than the answer to COMMIT
	}
	slices.Sort(all)
	e.add(all)
	a, err := b.audit(ctx, dsn)
	e.count(a)
	return err
}

// paced places so many orders a second, each when its time has come, whatever happens to those before.
func paced(ctx context.Context, r out.Runner, pace int, during time.Duration) (*sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &sample{committed: map[string]time.Time{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(pace))
	defer ticker.Stop()
	for end := time.Now().Add(during); time.Now().Before(end) && ctx.Err() == nil; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		group.Go(func() {
			order := out.NewOrder(1 + rand.N(out.Customers))
			if err := r.Place(ctx, order); err != nil {
				cancel(err)
				return
			}
			committed := time.Now()
			mu.Lock()
			defer mu.Unlock()
			t.committed[order.ID] = committed
		})
	}
	group.Wait()
	return t, context.Cause(ctx)
}

// stocks measures how fast those messages leave that a relay finds.
func stocks(ctx context.Context, s *sidebyside.Server, r *results) (err error) {
	r.stock, err = outCell(ctx, s, r, "stock", relays, func(ctx context.Context, e *entry, c out.Contestant, dsn string) error {
		b, err := openBooth(ctx, c, dsn, r.plan.pool)
		if err != nil {
			return err
		}
		if err := e.stock(ctx, b, dsn, r.plan); err != nil {
			return closing(b, err)
		}
		return b.Close()
	})
	return err
}

func (e *entry) stock(ctx context.Context, b *booth, dsn string, p plan) error {
	const together = 1000
	for n := 0; n < p.stock; n += together {
		orders := make([]out.Order, min(together, p.stock-n))
		for i := range orders {
			orders[i] = out.NewOrder(1 + rand.N(out.Customers))
		}
		if err := b.Runner.(out.Relayer).Stock(ctx, orders); err != nil {
			return err
		}
	}
	if err := sidebyside.Execute(ctx, dsn, "vacuum analyze"); err != nil {
		return err
	}
	runtime.GC()
	begin := time.Now()
	b.relay()
	if err := b.published(ctx, p.stock); err != nil {
		return err
	}
	e.perSecond = append(e.perSecond, float64(p.stock)/time.Since(begin).Seconds())
	return nil
}

// relays tells whose messages leave later. Those that send their statements together relay like the others.
func relays(c out.Contestant) bool { return c.Relays && !c.Piped }

// apart tells who sends its statements one by one.
func apart(c out.Contestant) bool { return !c.Piped }
