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

// These are the dimensions of a storm: a thousand duplicates of a call that is still in progress.
// During a storm, other clients, the bystanders, make calls with new keys over the same pool.
const (
	duplicates    = 1000
	bystanders    = 8
	firstRun      = 200 * time.Millisecond
	stormPoolSize = 16
)

// storm returns a runner.Contestant that sends one storm of duplicates in each measurement. Its
// figures compare the latency of bystanders, which are clients with other keys, during and without
// such a storm.
func storm(who contestant.Contestant, seed uint64) runner.Contestant {
	return seated(who.Name, who, way{conns: stormPoolSize}, func(ctx context.Context, b *booth) (runner.Seat, error) {
		keys := cell{}.source(seed)
		if _, err := b.load(ctx, keys, stormPoolSize, runner.Limit{Calls: 10}); err != nil {
			return runner.Seat{}, err
		}
		var calm, stormy []time.Duration // latencies of the bystanders without and during a storm
		take := func(ctx context.Context) (result.Values, error) {
			before, err := b.window(ctx, keys, 0)
			if err != nil {
				return nil, err
			}
			during, err := b.window(ctx, keys, duplicates)
			calm, stormy = append(calm, before.Latencies...), append(stormy, during.Latencies...)
			return nil, err
		}
		finish := func(context.Context) (result.Values, error) {
			slices.Sort(calm)
			slices.Sort(stormy)
			calm, stormy := runner.Micros(calm, 0.99), runner.Micros(stormy, 0.99)
			return result.Values{"calm_p99_us": calm, "storm_p99_us": stormy, "slowdown": stormy / calm}, nil
		}
		return runner.Seat{Take: take, Finish: finish}, nil
	})
}

// window makes one slow call and sends the given number of duplicates of this call. Meanwhile the
// bystanders make calls with other keys. window returns the latencies of the bystanders.
func (b *booth) window(ctx context.Context, keys *source, duplicates int) (bystanding sample, err error) {
	call := keys.call(keys.take(1)[0])
	again := call
	var mu sync.Mutex
	note := func(failed error) {
		mu.Lock()
		defer mu.Unlock()
		err = errors.Join(err, failed)
	}
	var waiting, standing sync.WaitGroup
	call.Hold = func() { // a retried transaction calls Hold again, and more duplicates are sent
		for range duplicates {
			waiting.Go(func() {
				_, failed := b.do(ctx, again)
				note(failed)
			})
		}
		time.Sleep(firstRun)
	}
	over := make(chan struct{})
	standing.Go(func() {
		var failed error
		bystanding, failed = b.load(ctx, keys, bystanders, runner.Limit{Done: over})
		note(failed)
	})
	_, failed := b.do(ctx, call)
	note(failed)
	waiting.Wait()
	close(over)
	standing.Wait()
	return bystanding, err
}
