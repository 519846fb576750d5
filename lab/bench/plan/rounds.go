package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// seat is a contestant that takes its turns in a cell.
type seat struct {
	name    string
	records int // in the table, where seats differ in that
	booth   *arena.Booth
	source  *measure.Source
	samples []measure.Sample
	err     error
}

// pace is how long a sample is, and how many of them everybody has. Many short samples find more out than few long ones of
// the same sum: what is compared is closer together, and the median has more to choose from. An odd number has a middle.
type pace struct {
	rounds int
	sample time.Duration
}

func (s *Session) pace(c cell) pace {
	p := s.usualPace(c)
	if s.Rounds > 0 {
		p.rounds = s.Rounds
	}
	return p
}

func (s *Session) usualPace(c cell) pace {
	if s.Quick {
		return pace{3, 80 * time.Millisecond}
	}
	if len(c.who) == 0 { // growth: few seats, and small differences
		return pace{21, 150 * time.Millisecond}
	}
	if c.Bytes() >= 1<<20 {
		return pace{5, 180 * time.Millisecond}
	}
	return pace{15, 85 * time.Millisecond}
}

func (p pace) total(seats int) time.Duration {
	return time.Duration(p.rounds*seats)*p.sample*5/4 + time.Duration(seats)*100*time.Millisecond
}

// interleave lets all seats have one turn in every round, in another order each time: what disturbs the machine for some
// seconds disturbs all of them. A seat that fails is out.
func (s *Session) interleave(ctx context.Context, seats []*seat, c cell, pace pace) error {
	random := rand.New(rand.NewPCG(s.seed(c.Name()), 1))
	for range pace.rounds {
		order := slices.Clone(seats)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, each := range order {
			if each.err != nil {
				continue
			}
			runtime.GC() // the garbage of the one before is not this one's
			sample := each.take(ctx, c, measure.Limit{Time: pace.sample})
			if each.err = sample.Err; each.err == nil {
				each.samples = append(each.samples, sample)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// take makes one sample. The processor time is read where nothing is between client and server that has some of its own, and where
// the server is in no container.
func (each *seat) take(ctx context.Context, c cell, limit measure.Limit) measure.Sample {
	if c.Leg != result.Loopback {
		return measure.Run(ctx, each.booth.Runner, each.source, c.Clients, limit)
	}
	return measure.RunOn(ctx, each.booth.Clock(), each.booth.Runner, each.source, c.Clients, limit)
}

// cell measures one cell.
func (s *Session) cell(ctx context.Context, lane *arena.Lane, l leg, c cell) error {
	done := result.Cell{Name: c.Name(), Setting: c.setting(l), Unit: c.who[0].Name}
	var seats []*seat
	for _, who := range c.who {
		each := &seat{name: who.Name}
		if each.booth, each.err = lane.Booth(ctx, who); each.err == nil {
			each.err = s.prepare(ctx, each, c)
		}
		seats = append(seats, each)
	}
	if err := s.interleave(ctx, seats, c, s.pace(c)); err != nil {
		return err
	}
	for _, each := range seats {
		done.Entries = append(done.Entries, each.entry(ctx, c))
		if failed := each.err; failed != nil {
			s.noteFailure(done.Name+": "+each.name, failed)
		}
	}
	s.results.Cells = append(s.results.Cells, done)
	return nil
}

// warmUp is how many calls each client makes before it is measured. PostgreSQL plans a statement anew for the first five times on a
// connection: with fewer calls the first sample measured that, and said of three rounds 1.0 where the others said 1.7.
const warmUp = 12

// prepare warms the connections up, and records what is to be replayed.
func (s *Session) prepare(ctx context.Context, each *seat, c cell) error {
	if err := arena.Clear(ctx, each.booth.Pool); err != nil {
		return err
	}
	each.source = measure.NewSource(s.seed(c.Name()), c.statements(), c.Bytes())
	each.source.Share = c.Share
	if c.Work == result.Replay {
		if err := prime(ctx, each.booth.Runner, each.source, 100); err != nil {
			return err
		}
	}
	return measure.Run(ctx, each.booth.Runner, each.source, c.Clients, measure.Limit{Ops: warmUp}).Err
}

// prime records responses for some keys, and lets the source call nothing else.
func prime(ctx context.Context, runner contestant.Runner, source *measure.Source, keys int) error {
	all := source.Take(keys)
	for _, key := range all {
		call := source.Template
		call.Key = key
		if _, err := runner.Do(ctx, call); err != nil {
			return err
		}
	}
	source.Keys = all
	return nil
}

// entry sums the samples up, and looks at what they have left in the database.
func (each *seat) entry(ctx context.Context, c cell) result.Entry {
	e := result.Entry{Name: each.name, Records: each.records}
	if each.err != nil {
		e.Error = each.err.Error()
		return e
	}
	var all []time.Duration
	for _, sample := range each.samples {
		all = append(all, sample.Latencies...)
		e.Replayed += sample.Replayed
		e.Refused += sample.Refused
		e.Rounds = append(e.Rounds, result.Round{
			Ops: len(sample.Latencies), P50: round(sample.P(0.5)), PerSecond: round(sample.PerSecond()), Processor: round(sample.ProcessorEach()),
		})
	}
	slices.Sort(all)
	e.Ops, e.P50, e.P99 = len(all), round(measure.Quantile(all, 0.5)/1e3), round(measure.Quantile(all, 0.99)/1e3)
	effects, err := arena.Count(ctx, each.booth.Pool)
	if err == nil {
		err = each.verify(c, effects, e)
	}
	if err != nil {
		each.err = fmt.Errorf("unverified: %w", err)
		e.Unverified = err.Error()
	}
	e.Executed, e.Requests = effects.Orders, each.source.Fresh()
	return e
}

// verify finds a contestant out that has not done what it was asked for.
func (each *seat) verify(c cell, effects arena.Effects, e result.Entry) error {
	if c.Work == result.Replay && each.booth.Contestant.Tables != nil && e.Replayed != e.Ops {
		return fmt.Errorf("%d of %d calls were replays", e.Replayed, e.Ops)
	}
	return effects.Check(each.source.Fresh(), c.Business == result.Realistic, each.booth.Contestant.Repeats)
}

// round keeps what is worth keeping of a figure.
func round(figure float64) float64 {
	return float64(int64(figure*10+0.5)) / 10
}
