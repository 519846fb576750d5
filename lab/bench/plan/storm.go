package plan

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// A storm is one key that is called by many at once while its first run takes its time. Bystanders make first runs with
// other keys, over the same pool.
const (
	duplicates = 1000
	bystanders = 8
	firstRun   = 200 * time.Millisecond
)

// storm measures the bystanders' latencies in windows without the duplicates and with them, in turns.
func (s *Session) storm(ctx context.Context, near *arena.Lane, c contestant.Contestant) error {
	done := result.Storm{Name: c.Name, Storms: 8}
	if s.Quick {
		done.Storms = 3
	}
	if err := s.weather(ctx, near, c, &done); err != nil {
		if ctx.Err() != nil {
			return err
		}
		done.Error = err.Error()
		s.noteFailure(result.StormOf(c.Name), err)
	}
	s.results.Storms = append(s.results.Storms, done)
	return nil
}

func (s *Session) weather(ctx context.Context, near *arena.Lane, c contestant.Contestant, done *result.Storm) error {
	lane, err := arena.NewLane(near.Server, 0, false, stormPoolSize)
	if err != nil {
		return err
	}
	defer lane.Close()
	booth, err := lane.Booth(ctx, c)
	if err != nil {
		return err
	}
	b := &bench{booth, measure.NewSource(s.seed(result.StormOf(c.Name)), contestant.OneInsert, result.Small)}
	if sample := measure.Run(ctx, booth.Runner, b.source, stormPoolSize, measure.Limit{Ops: 10}); sample.Err != nil {
		return sample.Err
	}
	var calm, stormy []time.Duration
	var settled []float64
	for range done.Storms {
		quiet, err := b.window(ctx, 0)
		if err != nil {
			return err
		}
		wild, err := b.window(ctx, duplicates)
		if err != nil {
			return err
		}
		done.Calm, done.Stormy = append(done.Calm, round(quiet.sample.P(0.99))), append(done.Stormy, round(wild.sample.P(0.99)))
		calm, stormy = append(calm, quiet.sample.Latencies...), append(stormy, wild.sample.Latencies...)
		settled = append(settled, float64(wild.settled.Microseconds())/1e3)
		done.Refused += wild.refused
		done.Executed += wild.executed
	}
	slices.Sort(calm)
	slices.Sort(stormy)
	done.CalmP99, done.StormP99 = round(measure.Quantile(calm, 0.99)/1e3), round(measure.Quantile(stormy, 0.99)/1e3)
	done.Settled = round(measure.Of(settled).Median)
	return nil
}

// window is what was seen while one key was hot.
type window struct {
	sample            measure.Sample // of the bystanders
	settled           time.Duration
	refused, executed int
	answers           int
}

// window lets the bystanders run while one first run takes its time, and some duplicates of it wait.
func (b *bench) window(ctx context.Context, duplicates int) (w window, err error) {
	call := b.source.Template
	call.Key = b.source.Take(1)[0]
	again := call
	var waiting sync.WaitGroup
	var mu sync.Mutex
	var failed error
	note := func(answer contestant.Answer, doErr error) {
		mu.Lock()
		defer mu.Unlock()
		if doErr != nil {
			failed = doErr
		}
		if answer.Refused {
			w.refused++
		}
		w.answers++
	}
	call.Hold = func() {
		w.executed++
		for range duplicates {
			waiting.Go(func() { note(b.booth.Runner.Do(ctx, again)) })
		}
		time.Sleep(firstRun)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan measure.Sample, 1)
	go func() {
		seen <- measure.Until(ctx, b.booth.Runner, b.source, bystanders)
	}()
	begin := time.Now()
	note(b.booth.Runner.Do(ctx, call))
	waiting.Wait()
	w.settled = time.Since(begin)
	cancel()
	w.sample = <-seen
	if failed == nil {
		failed = w.sample.Err
	}
	return w, failed
}
