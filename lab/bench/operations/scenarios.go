package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// Modules lists the Go modules whose versions are stored with the results.
var Modules = []string{
	"github.com/jackc/pgx/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/riverqueue/river",
}

// plan contains the sizes and durations of the measurements.
type plan struct {
	server  runner.Spec
	ops     int // number of operations in the cost scenario
	rounds  int
	turn    time.Duration
	clients int // number of clients in the scenario with a slow bank
	kill    kill
}

const (
	poolSize = 20
	far      = 20 * time.Millisecond // answer time of a slow bank, as if it were far away
)

// Scenarios returns the scenarios of the suite "operations". If quick is true, the scenarios are so
// short that their figures are not meaningful.
func Scenarios(quick bool, _ uint64) []runner.Scenario {
	p := plan{ops: 200, rounds: 4, turn: 900 * time.Millisecond, clients: 64, kill: kill{
		workers: 10, each: 100, patience: 15 * time.Second, limit: 70 * time.Second,
	}}
	if quick {
		p = plan{server: runner.Spec{Volatile: true}, ops: 3, rounds: 2, turn: 50 * time.Millisecond, clients: 8, kill: kill{
			workers: 3, each: 3, patience: time.Second, limit: time.Minute,
		}}
	}
	return []runner.Scenario{
		p.cell(0, 1), p.cell(0, 8), p.cell(far, 1), p.cell(far, p.clients),
		p.each("costs", contestant.All, p.cost),
		p.each("killed", contestant.Resuming, p.kill.measure),
	}
}

// each returns a scenario that calls measure once for each contestant.
func (p plan) each(name string, who []contestant.Contestant, measure func(context.Context, *runner.Server, contestant.Contestant) (result.Values, error)) runner.Scenario {
	sc := runner.Scenario{Name: "operations/" + name, Server: p.server}
	for _, c := range who {
		sc.Contestants = append(sc.Contestants, runner.Once(c.Name, func(ctx context.Context, s *runner.Server) (result.Values, error) {
			return measure(ctx, s, c)
		}))
	}
	return sc
}

// cell returns a scenario that measures all contestants with the given number of clients and a bank
// that answers after delay.
func (p plan) cell(delay time.Duration, clients int) runner.Scenario {
	name := "near"
	if delay > 0 {
		name = "far"
	}
	sc := runner.Scenario{Name: fmt.Sprintf("operations/%s/%d", name, clients), Server: p.server, Rounds: p.rounds}
	for _, c := range contestant.All {
		sc.Contestants = append(sc.Contestants, runner.Contestant{Name: c.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
			dsn, err := s.Database(ctx, contestant.Schema, c.Prepare)
			return runner.Seat{Take: func(ctx context.Context) (result.Values, error) { return p.take(ctx, c, dsn, delay, clients) }}, err
		}})
	}
	return sc
}

// take measures the contestant c once and compares its orders with the charges of the bank.
func (p plan) take(ctx context.Context, c contestant.Contestant, dsn string, delay time.Duration, clients int) (result.Values, error) {
	if err := runner.Reset(ctx, dsn, "orders"); err != nil {
		return nil, err
	}
	other, err := bank.Open(delay, false)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	b, err := openBooth(ctx, c, contestant.Place{DSN: dsn}, other.URL, poolSize)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	// Warm up first, because on each connection PostgreSQL plans a prepared statement again at each
	// of its first five executions.
	warm, err := b.load(ctx, clients, runner.Limit{Time: 3 * p.turn / 2, Calls: (8*min(clients, poolSize) + 24) / clients})
	if err != nil {
		return nil, err
	}
	s, err := b.load(ctx, clients, runner.Limit{Time: p.turn})
	if err != nil {
		return nil, err
	}
	return s.Values(), verify(ctx, dsn, other, len(warm.Latencies)+len(s.Latencies))
}
