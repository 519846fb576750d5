package calls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// These are the kinds of calls that a cell can measure.
const (
	first  = "first"  // each call has a new key
	replay = "replay" // each call has a key with a recorded answer
)

// cell describes the calls that a scenario measures.
type cell struct {
	work      string
	realistic bool // a realistic order instead of one INSERT
	clients   int
	way       way
	limit     runner.Limit // says when one measurement ends
	processor bool         // also report the processor times of server and client
}

const smallResponse = 200

func (c cell) source(seed uint64) *source {
	if c.realistic {
		return newSource(seed, contestant.Realistic, smallResponse)
	}
	return newSource(seed, contestant.OneInsert, smallResponse)
}

// contestant returns a runner.Contestant that makes the calls of the cell with the implementation
// who.
func (c cell) contestant(who contestant.Contestant, seed uint64) runner.Contestant {
	return seated(who.Name, who, c.way, func(ctx context.Context, b *booth) (runner.Seat, error) {
		keys := c.source(seed)
		if c.work == replay {
			if err := b.prime(ctx, keys, 100); err != nil {
				return runner.Seat{}, err
			}
		}
		if _, err := b.load(ctx, keys, c.clients, runner.Limit{Calls: warmUp}); err != nil {
			return runner.Seat{}, err
		}
		take := func(ctx context.Context) (result.Values, error) {
			s, used, err := b.timed(ctx, keys, c.clients, c.limit)
			if err != nil {
				return nil, err
			}
			values := s.Values()
			if c.processor {
				maps.Copy(values, used)
			}
			return values, nil
		}
		return runner.Seat{Take: take, Finish: b.verify(keys, c.realistic)}, nil
	})
}

// warmUp is the number of calls that each client makes before the measurement. On each connection,
// PostgreSQL plans a prepared statement again at each of its first five executions. With fewer
// calls, the first measurement would include this planning.
const warmUp = 12

// prime makes calls with new keys, so that their responses are recorded. From then on, s generates
// calls with these keys only.
func (b *booth) prime(ctx context.Context, s *source, keys int) error {
	all := s.take(keys)
	for _, key := range all {
		if _, err := b.do(ctx, s.call(key)); err != nil {
			return err
		}
	}
	s.keys = all
	return nil
}

// timed makes calls and returns the processor time per call in microseconds. If a proxy runs in
// this process, timed returns no processor times, because the proxy uses processor time too. It
// also returns none if the kernel does not report them. timed fails if a call with a recorded key
// was executed instead of replayed.
func (b *booth) timed(ctx context.Context, keys *source, clients int, limit runner.Limit) (sample, result.Values, error) {
	database := b.pool.Config().ConnConfig.Database
	before, err := b.server.Processor(ctx, database)
	s, failed := b.load(ctx, keys, clients, limit)
	if n := len(s.Latencies); failed == nil && keys.keys != nil && b.Tables != nil && s.replayed != n {
		failed = fmt.Errorf("%d of %d calls were replays", s.replayed, n)
	}
	if failed != nil || b.proxy != nil || errors.Is(err, runner.ErrNoClock) {
		return s, nil, failed
	}
	after, errAfter := b.server.Processor(ctx, database)
	each := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(len(s.Latencies)) }
	return s, result.Values{"server_us": each(after.Server - before.Server), "client_us": each(after.Client - before.Client)}, errors.Join(err, errAfter)
}
