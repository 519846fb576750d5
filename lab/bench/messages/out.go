package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
)

// seat is a publishing contestant on its database.
type seat struct {
	plan
	out.Contestant
	server  *runner.Server
	dsn     string
	measure func(*seat, context.Context) (result.Values, error)
	runner.Together
	account broker.Account // sum over all turns
}

// out returns a scenario. Each turn empties the tables and calls measure.
func (p plan) out(name string, rounds int, who []out.Contestant, measure func(*seat, context.Context) (result.Values, error)) runner.Scenario {
	sc := runner.Scenario{Name: "messages/" + name, Server: p.server, Rounds: rounds}
	for _, c := range who {
		sc.Contestants = append(sc.Contestants, runner.Contestant{Name: c.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
			dsn, err := s.Database(ctx, out.Schema, c.Prepare)
			return &seat{plan: p, Contestant: c, server: s, dsn: dsn, measure: measure}, err
		}})
	}
	return sc
}

// Take measures a turn.
func (s *seat) Take(ctx context.Context) (result.Values, error) {
	if err := runner.Reset(ctx, s.dsn, "orders, entries"); err != nil {
		return nil, err
	}
	return s.measure(s, ctx)
}

// Finish returns the quantiles of all turns and the number of messages published out of order.
func (s *seat) Finish(ctx context.Context) (result.Values, error) {
	values, err := s.Together.Finish(ctx)
	if values != nil && s.account.Committed > 0 {
		values["committed"], values["out_of_order"] = float64(s.account.Committed), float64(s.account.Inverted)
	}
	return values, err
}

// with opens the contestant for a turn. It returns the error of the relay together with that of the
// turn.
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

// cost measures what an order of a single client costs apart from time. No relay runs.
func (s *seat) cost(ctx context.Context) (result.Values, error) {
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	return s.with(ctx, proxy.DSN(), 1, func(b *booth) (result.Values, error) {
		place := func(orders int) error {
			_, err := b.load(ctx, 1, out.Customers, runner.Limit{Calls: orders})
			return err
		}
		if err := place(s.warm); err != nil {
			return nil, err
		}
		if _, err := s.server.Admin.Exec(ctx, "checkpoint"); err != nil {
			return nil, err
		}
		// The first write to a page after a checkpoint logs the whole page: write to the pages
		// first.
		if err := runner.Execute(ctx, s.dsn, "update customers set orders = orders"); err != nil {
			return nil, err
		}
		if err := place(s.warm); err != nil {
			return nil, err
		}
		proxy.ResetTally()
		_, bytes, err := s.server.Logged(ctx, func() error { return place(s.ops) })
		return result.Values{"trips": float64(proxy.Tally().Turns) / float64(s.ops), "wal": bytes / float64(s.ops)}, err
	})
}

// save measures what a message costs the transaction that adds it. There is one client and no
// relay.
func (s *seat) save(ctx context.Context) (result.Values, error) {
	return s.with(ctx, s.dsn, poolSize, func(b *booth) (result.Values, error) {
		if _, err := b.load(ctx, 1, out.Customers, runner.Limit{Calls: s.warm}); err != nil {
			return nil, err
		}
		made, err := b.load(ctx, 1, out.Customers, runner.Limit{Time: s.turn})
		if err != nil {
			return nil, err
		}
		s.Add(made)
		saved, err := runner.Count(ctx, s.dsn, "select count(*) from entries")
		if want := int(b.committed.Load()); err == nil && saved != want {
			err = fmt.Errorf("%d of %d orders are saved", saved, want)
		}
		return made.Values(), err
	})
}

// through measures the throughput from the order to the publication. Several clients and a relay
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
		s.Add(made)
		values := result.Values{"per_s": float64(len(made.Latencies)) / time.Since(begin).Seconds()}
		if s.Silent {
			return values, nil
		}
		return values, s.audit(ctx, b)
	})
}

// audit adds up what was published. It returns an error if a message was lost, or published without
// a commit.
func (s *seat) audit(ctx context.Context, b *booth) error {
	a, err := b.audit(ctx)
	s.account.Committed += a.Committed
	s.account.Inverted += a.Inverted
	return err
}
