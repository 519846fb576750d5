package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
)

// seat is a publishing contestant with its database.
type seat struct {
	plan
	out.Contestant
	server   *runner.Server
	dsn      string
	together result.Values // figures that are summed over all measurements
}

// out returns a scenario with all publishing contestants. Each measurement begins with empty tables
// and calls measure.
func (p plan) out(name string, rounds int, measure func(*seat, context.Context) (result.Values, error)) runner.Scenario {
	sc := runner.Scenario{Name: "messages/" + name, Server: p.server, Rounds: rounds}
	for _, c := range out.All {
		open := func(ctx context.Context, server *runner.Server) (runner.Seat, error) {
			dsn, err := server.Database(ctx, out.Schema, c.Prepare)
			s := &seat{p, c, server, dsn, result.Values{}}
			take := func(ctx context.Context) (result.Values, error) {
				if err := runner.Reset(ctx, dsn, "orders, entries"); err != nil {
					return nil, err
				}
				return measure(s, ctx)
			}
			return runner.Seat{Take: take, Finish: func(context.Context) (result.Values, error) { return s.together, nil }}, err
		}
		sc.Contestants = append(sc.Contestants, runner.Contestant{Name: c.Name, Open: open})
	}
	return sc
}

// with opens the contestant, calls turn and closes the contestant. It returns the error of turn
// together with the error of the relay.
func (s *seat) with(ctx context.Context, dsn string, conns int, turn func(b *booth) (result.Values, error)) (result.Values, error) {
	b, err := openBooth(ctx, s.Contestant, dsn, conns)
	if err != nil {
		return nil, err
	}
	values, err := turn(b)
	if closed := b.Close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("the relay: %w", closed))
	}
	return values, err
}

// cost measures what an order costs apart from time: round trips, commits and WAL. A single client
// places the orders, and no relay runs.
func (s *seat) cost(ctx context.Context) (result.Values, error) {
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	return s.with(ctx, proxy.DSN(), 1, func(b *booth) (result.Values, error) {
		return s.server.Cost(ctx, proxy, "update customers set orders = orders", s.warm, s.ops, func(orders int) error {
			_, err := b.load(ctx, 1, out.Customers, runner.Limit{Calls: orders})
			return err
		})
	})
}

// save measures how long it takes to save an order with its message. A single client places the
// orders, and no relay runs.
func (s *seat) save(ctx context.Context) (result.Values, error) {
	return s.with(ctx, s.dsn, poolSize, func(b *booth) (result.Values, error) {
		if _, err := b.load(ctx, 1, out.Customers, runner.Limit{Calls: s.warm}); err != nil {
			return nil, err
		}
		made, err := b.load(ctx, 1, out.Customers, runner.Limit{Time: s.turn})
		if err != nil {
			return nil, err
		}
		var saved int
		err = runner.Scan(ctx, s.dsn, "select count(*) from entries", &saved)
		if want := int(b.committed.Load()); err == nil && saved != want {
			err = fmt.Errorf("%d of %d orders are saved", saved, want)
		}
		return made.Values(), err
	})
}

// through measures how many orders per second are saved and published. Several clients and a relay
// run in one process until all messages are published.
func (s *seat) through(ctx context.Context) (result.Values, error) {
	return s.with(ctx, s.dsn, poolSize, func(b *booth) (result.Values, error) {
		b.relay()
		var begin time.Time
		var made runner.Sample
		for _, limit := range []runner.Limit{{Calls: s.warm}, {Time: s.turn}} {
			var err error
			begin = time.Now()
			if made, err = b.load(ctx, clients, customers, limit); err != nil {
				return nil, err
			}
			if s.Silent {
				continue
			}
			if err := b.published(ctx, int(b.committed.Load())); err != nil {
				return nil, err
			}
		}
		values := result.Values{"per_s": float64(len(made.Latencies)) / time.Since(begin).Seconds()}
		if s.Silent {
			return values, nil
		}
		a, err := b.audit(ctx)
		s.together["out_of_order"] += float64(a.Inverted)
		return values, err
	})
}
