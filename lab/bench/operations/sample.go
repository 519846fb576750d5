package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
)

// sample is what one contestant did in one go.
type sample struct {
	latencies []time.Duration // sorted
	elapsed   time.Duration
}

// takeSample makes operations from some clients at once until the time is over, or each has made so many.
func takeSample(ctx context.Context, r contestant.Runner, clients int, limit time.Duration, ops int) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var t sample
	var group sync.WaitGroup
	begin := time.Now()
	for range clients {
		group.Go(func() {
			var own []time.Duration
			for n := 0; ctx.Err() == nil && (ops == 0 || n < ops) && (limit == 0 || time.Since(begin) < limit); n++ {
				start := time.Now()
				if err := r.Do(ctx, newOrder()); err != nil {
					cancel(err)
					return
				}
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			t.latencies = append(t.latencies, own...)
		})
	}
	group.Wait()
	t.elapsed = time.Since(begin)
	slices.Sort(t.latencies)
	return t, context.Cause(ctx)
}

func (t sample) perSecond() float64 { return float64(len(t.latencies)) / t.elapsed.Seconds() }

// newOrder returns a random UUID.
func newOrder() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
