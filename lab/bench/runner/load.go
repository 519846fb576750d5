package runner

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/result"
)

// Sample is the result of one call of Load.
type Sample struct {
	Latencies []time.Duration // sorted
	Elapsed   time.Duration
}

// Limit says when a Load ends: after a time, after a number of calls of each client, or when Done
// is closed. A zero field is no limit.
type Limit struct {
	Time  time.Duration
	Calls int
	Done  <-chan struct{}
}

func (l Limit) reached(calls int, elapsed time.Duration) bool {
	select {
	case <-l.Done:
		return true
	default:
		return l.Calls > 0 && calls >= l.Calls || l.Time > 0 && elapsed >= l.Time
	}
}

// Load runs simultaneous clients that make calls until the limit is reached or a call fails. Load
// calls next(client), which prepares a call and returns a function that makes the call. Load
// measures only the time of the returned function. It returns the first error of a call.
func Load(ctx context.Context, clients int, limit Limit, next func(client int) func(context.Context) error) (Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sample Sample
	var mu sync.Mutex
	var group sync.WaitGroup
	begin := time.Now()
	for client := range clients {
		group.Go(func() {
			own := make([]time.Duration, 0, 1<<12)
			for ctx.Err() == nil && !limit.reached(len(own), time.Since(begin)) {
				do := next(client)
				start := time.Now()
				if err := do(ctx); err != nil {
					cancel(err)
					return
				}
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			sample.Latencies = append(sample.Latencies, own...)
		})
	}
	group.Wait()
	sample.Elapsed = time.Since(begin)
	slices.Sort(sample.Latencies)
	return sample, context.Cause(ctx)
}

// PerSecond returns the number of calls per second.
func (s Sample) PerSecond() float64 { return float64(len(s.Latencies)) / s.Elapsed.Seconds() }

// P returns the quantile q of the latencies in microseconds, for example the median for q = 0.5. It
// returns NaN if there are no latencies.
func (s Sample) P(q float64) float64 { return Micros(s.Latencies, q) }

// Micros returns the quantile q of sorted durations in microseconds, for example the median for q =
// 0.5. It returns NaN if there are no durations.
func Micros(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return float64(sorted[int(math.Round(q*float64(len(sorted)-1)))]) / 1e3
}

// Values returns the figures of a measurement: the median latency and the throughput.
func (s Sample) Values() result.Values {
	return result.Values{"p50_us": s.P(0.5), "per_s": s.PerSecond()}
}
