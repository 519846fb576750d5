package plan

import (
	"context"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// profile finds out what one operation costs, apart from time. What the contestant cannot do stays zero, and is said.
func (s *Session) profile(ctx context.Context, lane *arena.Lane, c contestant.Contestant) error {
	p := result.Profile{Name: c.Name}
	seed := s.seed(result.ProfileOf(c.Name))
	if err := s.fill(ctx, lane, c, seed, &p); err != nil {
		if ctx.Err() != nil {
			return err
		}
		p.Error = err.Error()
		s.noteFailure(result.ProfileOf(c.Name), err)
	}
	s.results.Profiles = append(s.results.Profiles, p)
	return nil
}

func (s *Session) fill(ctx context.Context, lane *arena.Lane, c contestant.Contestant, seed uint64, p *result.Profile) error {
	booth, err := lane.Booth(ctx, c)
	if err != nil {
		return err
	}
	one := &bench{booth: booth, source: measure.NewSource(seed, contestant.OneInsert, result.Small)}
	for _, find := range []func(context.Context, *bench, *result.Profile) error{s.wal, s.allocs, s.storage, s.held, s.races} {
		if err := find(ctx, one, p); err != nil {
			return err
		}
	}
	return s.trips(ctx, lane, c, seed+1, p)
}

// bench is a contestant at a source.
type bench struct {
	booth  *arena.Booth
	source *measure.Source
}

// calls makes some calls, one after the other.
func (b *bench) calls(ctx context.Context, n int) (measure.Sample, error) {
	sample := measure.Run(ctx, b.booth.Runner, b.source, 1, measure.Limit{Ops: n})
	return sample, sample.Err
}

// replays is the same contestant at keys that are recorded; nil if it keeps none.
func (b *bench) replays(ctx context.Context) (*bench, error) {
	if b.booth.Contestant.Recordless {
		return nil, nil
	}
	source := b.source.Fork()
	if err := prime(ctx, b.booth.Runner, source, 20); err != nil {
		return nil, err
	}
	return &bench{b.booth, source}, nil
}

// both finds a figure of a first run and of a replay.
func (b *bench) both(ctx context.Context, find func(*bench) (float64, error)) (pair result.Pair, err error) {
	if pair.First, err = find(b); err != nil {
		return pair, err
	}
	again, err := b.replays(ctx)
	if err != nil || again == nil {
		return pair, err
	}
	pair.Replay, err = find(again)
	return pair, err
}

// wal counts bytes of write-ahead log. The median of some batches leaves out what the server writes on its own account.
func (s *Session) wal(ctx context.Context, b *bench, p *result.Profile) (err error) {
	const batches, calls = 5, 100
	p.WAL, err = b.both(ctx, func(b *bench) (float64, error) {
		if _, err := b.calls(ctx, calls); err != nil { // touches pages for the first time since the last checkpoint
			return 0, err
		}
		var figures []float64
		for range batches {
			before, err := b.booth.WAL(ctx)
			if err != nil {
				return 0, err
			}
			if _, err := b.calls(ctx, calls); err != nil {
				return 0, err
			}
			after, err := b.booth.WAL(ctx)
			if err != nil {
				return 0, err
			}
			figures = append(figures, (after-before)/calls)
		}
		return round(measure.Of(figures).Median), nil
	})
	return err
}

// allocs counts what the Go side allocates, less what the benchmark itself does.
func (s *Session) allocs(ctx context.Context, b *bench, p *result.Profile) error {
	const calls = 200
	idle := &bench{&arena.Booth{Runner: nothing{}}, b.source.Fork()}
	count := func(b *bench) (allocs, bytes float64, err error) {
		sample, err := b.calls(ctx, calls)
		return float64(sample.Allocs) / calls, float64(sample.Bytes) / calls, err
	}
	ownAllocs, ownBytes, err := count(idle)
	if err != nil {
		return err
	}
	p.Allocs, err = b.both(ctx, func(b *bench) (float64, error) {
		allocs, _, err := count(b)
		return round(max(0, allocs-ownAllocs)), err
	})
	if err != nil {
		return err
	}
	p.AllocBytes, err = b.both(ctx, func(b *bench) (float64, error) {
		_, bytes, err := count(b)
		return round(max(0, bytes-ownBytes)), err
	})
	return err
}

// nothing is the contestant that measures the benchmark.
type nothing struct{}

func (nothing) Do(context.Context, contestant.Call) (contestant.Answer, error) {
	return contestant.Answer{}, nil
}
func (nothing) Close() {}

// storage counts the bytes that a record takes, with its part of the indexes and what updates have left dead.
func (s *Session) storage(ctx context.Context, b *bench, p *result.Profile) error {
	const records, clients = 2000, 8
	before, err := b.booth.Size(ctx)
	if err != nil {
		return err
	}
	sample := measure.Run(ctx, b.booth.Runner, b.source, clients, measure.Limit{Ops: records / clients})
	if sample.Err != nil {
		return sample.Err
	}
	after, err := b.booth.Size(ctx)
	p.Storage = round(float64(after-before) / records)
	return err
}

// trips counts round trips, on a lane of its own. One connection is enough, and has every statement prepared after the
// first calls, unless the contestant listens on others.
func (s *Session) trips(ctx context.Context, direct *arena.Lane, c contestant.Contestant, seed uint64, p *result.Profile) error {
	connections := 1
	if c.Listens {
		connections = poolSize
	}
	lane, err := arena.NewLane(direct.Server, 0, true, connections)
	if err != nil {
		return err
	}
	defer lane.Close()
	booth, err := lane.Booth(ctx, c)
	if err != nil {
		return err
	}
	count := func(b *bench) (float64, error) {
		const warm, calls = 5, 20
		if _, err := b.calls(ctx, warm); err != nil {
			return 0, err
		}
		if err := booth.Settle(ctx); err != nil {
			return 0, err
		}
		lane.Turns()
		if _, err := b.calls(ctx, calls); err != nil {
			return 0, err
		}
		err := booth.Settle(ctx)
		return round(float64(lane.Turns()) / calls), err
	}
	one := &bench{booth, measure.NewSource(seed, contestant.OneInsert, result.Small)}
	pair, err := one.both(ctx, count)
	if err != nil {
		return err
	}
	p.Trips.Insert, p.Trips.Replay = pair.First, pair.Replay
	one.source.Template.Business = contestant.Realistic
	p.Trips.Realistic, err = count(one)
	return err
}
