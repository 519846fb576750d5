package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
)

// A storm is a thousand calls with one key while its first run is in progress. Meanwhile bystanders
// make first runs with other keys over the same pool.
const (
	duplicates    = 1000
	bystanders    = 8
	firstRun      = 200 * time.Millisecond
	stormPoolSize = 16
)

// storm returns a runner.Contestant that has one storm in each turn.
func storm(who contestant.Contestant, seed uint64) runner.Contestant {
	return runner.Contestant{Name: who.Name, Open: func(ctx context.Context, s *runner.Server) (runner.Seat, error) {
		b, err := open(ctx, s, who, way{conns: stormPoolSize})
		if err != nil {
			return nil, err
		}
		w := &weather{booth: b, keys: cell{}.source(seed)}
		if _, err := b.load(ctx, w.keys, stormPoolSize, runner.Limit{Calls: 10}); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return w, nil
	}}
}

// weather runs the turns of a contestant in storms.
type weather struct {
	*booth
	keys         *source
	calm, stormy []time.Duration // latencies of the bystanders in all turns
}

// Take measures the latency of the bystanders first without duplicates and then during a storm.
func (w *weather) Take(ctx context.Context) (result.Values, error) {
	calm, err := w.window(ctx, 0)
	if err != nil {
		return nil, err
	}
	stormy, err := w.window(ctx, duplicates)
	if err != nil {
		return nil, err
	}
	w.calm, w.stormy = append(w.calm, calm.Latencies...), append(w.stormy, stormy.Latencies...)
	return result.Values{
		"slowdown_window": stormy.P(0.99) / calm.P(0.99), "settled_ms": float64(stormy.settled.Microseconds()) / 1e3, "refused": float64(stormy.refused),
	}, nil
}

func (w *weather) Finish(context.Context) (result.Values, error) {
	slices.Sort(w.calm)
	slices.Sort(w.stormy)
	calm, stormy := runner.Micros(w.calm, 0.99), runner.Micros(w.stormy, 0.99)
	return result.Values{"calm_p99_us": calm, "storm_p99_us": stormy, "slowdown": stormy / calm}, nil
}

// window is the outcome of one storm.
type window struct {
	sample  // of the bystanders
	settled time.Duration
	refused int // refused duplicates
}

// window runs the bystanders during one slow first run, with a number of duplicates that wait for
// it.
func (w *weather) window(ctx context.Context, duplicates int) (found window, err error) {
	call := w.keys.template
	call.Key = w.keys.take(1)[0]
	again := call
	var waiting sync.WaitGroup
	var mu sync.Mutex
	var failed error
	note := func(answer contestant.Answer, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		if answer.Refused {
			found.refused++
		}
	}
	call.Hold = func() {
		for range duplicates {
			waiting.Go(func() { note(w.runner.Do(ctx, again)) })
		}
		time.Sleep(firstRun)
	}
	over, seen := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		found.sample, err = w.load(ctx, w.keys, bystanders, runner.Limit{Done: over})
		seen <- err
	}()
	begin := time.Now()
	note(w.runner.Do(ctx, call))
	waiting.Wait()
	found.settled = time.Since(begin)
	close(over)
	return found, errors.Join(failed, <-seen)
}
