package calls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// These are the kinds of calls.
const (
	first  = "first"  // each call has a new key
	replay = "replay" // each call has a key with a recorded answer
)

// cell describes the calls of a scenario.
type cell struct {
	work      string
	realistic bool // a realistic order instead of one INSERT
	clients   int
	way       way
	limit     runner.Limit // of one turn
	processor bool         // report the processor times of server and client
}

const smallResponse = 200

func (c cell) source(seed uint64) *source {
	if c.realistic {
		return newSource(seed, contestant.Realistic, smallResponse)
	}
	return newSource(seed, contestant.OneInsert, smallResponse)
}

// contestant returns a runner.Contestant that takes turns in the cell.
func (c cell) contestant(who contestant.Contestant, seed uint64) runner.Contestant {
	return runner.Contestant{Name: who.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		b, err := open(ctx, s, who, c.way)
		if err != nil {
			return nil, err
		}
		t := &turns{booth: b, cell: c, keys: c.source(seed)}
		if err := t.prepare(ctx); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return t, nil
	}}
}

// turns runs the turns of a contestant in a cell.
type turns struct {
	*booth
	cell
	keys     *source
	all      []time.Duration
	replayed int
}

// warmUp is the number of calls of each client before the measurement. On each connection,
// PostgreSQL plans a statement anew for its first five executions. With fewer calls, the first turn
// would measure the planning.
const warmUp = 12

// prepare records the responses to replay, and warms up the connections.
func (t *turns) prepare(ctx context.Context) error {
	if t.work == replay {
		if err := prime(ctx, t.runner, t.keys, 100); err != nil {
			return err
		}
	}
	_, err := t.load(ctx, t.keys, t.clients, runner.Limit{Calls: warmUp})
	return err
}

// prime records responses for new keys, and makes s repeat these keys only.
func prime(ctx context.Context, r contestant.Runner, s *source, keys int) error {
	all := s.take(keys)
	for _, key := range all {
		call := s.template
		call.Key = key
		if _, err := r.Do(ctx, call); err != nil {
			return err
		}
	}
	s.keys = all
	return nil
}

func (t *turns) Take(ctx context.Context) (result.Values, error) {
	s, used, err := t.timed(ctx, t.keys, t.clients, t.limit)
	if err != nil {
		return nil, err
	}
	t.all = append(t.all, s.Latencies...)
	t.replayed += s.replayed
	values := result.Values{"p50_us": s.P(0.5), "per_s": s.PerSecond()}
	if t.processor {
		maps.Copy(values, used)
	}
	return values, nil
}

// timed loads the contestant and returns the processor time per call in microseconds. It returns no
// times if a proxy runs in this process, because the proxy needs processor time too, or if the
// kernel does not report them.
func (b *booth) timed(ctx context.Context, keys *source, clients int, limit runner.Limit) (sample, result.Values, error) {
	database := b.pool.Config().ConnConfig.Database
	before, err := b.server.Processor(ctx, database)
	s, failed := b.load(ctx, keys, clients, limit)
	if failed != nil || b.proxy != nil || errors.Is(err, runner.ErrNoClock) {
		return s, nil, failed
	}
	after, errAfter := b.server.Processor(ctx, database)
	each := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(len(s.Latencies)) }
	return s, result.Values{"server_us": each(after.Server - before.Server), "client_us": each(after.Client - before.Client)}, errors.Join(err, errAfter)
}

func (t *turns) Finish(ctx context.Context) (result.Values, error) {
	slices.Sort(t.all)
	found, err := count(ctx, t.pool)
	if err != nil {
		return nil, err
	}
	if t.work == replay && t.Tables != nil && t.replayed != len(t.all) {
		return nil, fmt.Errorf("%d of %d calls were replays", t.replayed, len(t.all))
	}
	values := result.Values{"p50_us": runner.Micros(t.all, 0.5), "p99_us": runner.Micros(t.all, 0.99)}
	return values, found.check(t.keys.made(), t.realistic, t.Repeats)
}
