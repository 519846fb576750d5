// Package measure runs a contestant for a while and says what it took.
package measure

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/contestant"
)

// Sample is what a contestant did in one go.
type Sample struct {
	Latencies         []time.Duration // sorted
	Elapsed           time.Duration
	Replayed, Refused int
	Allocs, Bytes     uint64
	Processor         time.Duration // of server and client together, if RunOn has read it
	Err               error         // the first
}

// Limit ends a sample, by time or by the number of operations of each client.
type Limit struct {
	Time time.Duration
	Ops  int
}

// Run makes calls from some clients at once until the limit is reached, or one of them fails.
func Run(ctx context.Context, runner contestant.Runner, source *Source, clients int, limit Limit) Sample {
	return run(ctx, runner, source, clients, func(n int, elapsed time.Duration) bool {
		return (limit.Ops == 0 || n < limit.Ops) && (limit.Time == 0 || elapsed < limit.Time)
	})
}

// RunOn is Run with the processor time by a clock. Where no clock can be read there is none.
func RunOn(ctx context.Context, clock Clock, runner contestant.Runner, source *Source, clients int, limit Limit) Sample {
	before, err := clock.Read(ctx)
	sample := Run(ctx, runner, source, clients, limit)
	if sample.Err != nil || errors.Is(err, ErrNoClock) {
		return sample
	}
	after, errAfter := clock.Read(ctx)
	sample.Err = errors.Join(err, errAfter)
	used := after.Minus(before)
	sample.Processor = used.Client + used.Server
	return sample
}

// run makes calls for as long as goOn, which is told how many a client has made and how long the sample has been, says so.
func run(ctx context.Context, runner contestant.Runner, source *Source, clients int, goOn func(int, time.Duration) bool) Sample {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	logs := make([]log, clients)
	for i := range logs {
		logs[i].latencies = make([]time.Duration, 0, 1<<12)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	var group sync.WaitGroup
	for client := range clients {
		next := source.client()
		group.Go(func() {
			if err := logs[client].fill(ctx, runner, next, func(n int) bool { return goOn(n, time.Since(begin)) }); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	sample := Sample{Elapsed: time.Since(begin), Err: context.Cause(ctx)}
	runtime.ReadMemStats(&after)
	sample.Allocs, sample.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	for _, l := range logs {
		sample.Latencies = append(sample.Latencies, l.latencies...)
		sample.Replayed += l.replayed
		sample.Refused += l.refused
	}
	slices.Sort(sample.Latencies)
	return sample
}

// Until is Run until the context ends, which is no failure. The calls under way are finished.
func Until(ctx context.Context, runner contestant.Runner, source *Source, clients int) Sample {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { close(over) })
	defer stop()
	return run(context.WithoutCancel(ctx), runner, source, clients, func(int, time.Duration) bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	})
}

// log is what one client notes down.
type log struct {
	latencies         []time.Duration
	replayed, refused int
}

func (l *log) fill(ctx context.Context, runner contestant.Runner, next func() contestant.Call, goOn func(n int) bool) error {
	for n := 0; ctx.Err() == nil && goOn(n); n++ {
		call := next()
		start := time.Now()
		answer, err := runner.Do(ctx, call)
		if err != nil {
			return err
		}
		l.latencies = append(l.latencies, time.Since(start))
		l.note(answer)
	}
	return nil
}

func (l *log) note(answer contestant.Answer) {
	if answer.Replayed {
		l.replayed++
	}
	if answer.Refused {
		l.refused++
	}
}

// PerSecond is the throughput.
func (t Sample) PerSecond() float64 { return float64(len(t.Latencies)) / t.Elapsed.Seconds() }

// P is the q-th quantile of the latencies in microseconds.
func (t Sample) P(q float64) float64 { return Quantile(t.Latencies, q) / 1e3 }

// ProcessorEach is the processor time of a call in microseconds.
func (t Sample) ProcessorEach() float64 {
	return float64(t.Processor) / float64(len(t.Latencies)) / 1e3
}
