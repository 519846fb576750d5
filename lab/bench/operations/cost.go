package operations

import (
	"context"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
)

// cost measures what an operation of a single client costs apart from time. Background work of the
// contestant is included, above all polling.
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
	do := func(operations int) error {
		_, err := b.load(ctx, 1, runner.Limit{Calls: operations})
		return err
	}
	few := p.ops/10 + 1
	if err := do(few); err != nil {
		return nil, err
	}
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return nil, err
	}
	// The first write to a page after a checkpoint logs the whole page: write to the pages first.
	if err := do(few); err != nil {
		return nil, err
	}
	proxy.ResetTally()
	var trips int
	commits, bytes, err := s.Logged(ctx, func() error {
		err := do(p.ops)
		trips = proxy.Tally().Turns
		return err
	})
	each := func(n float64) float64 { return n / float64(p.ops) }
	return result.Values{"trips": each(float64(trips)), "commits": each(commits), "wal": each(bytes)}, err
}
