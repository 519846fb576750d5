package ledger

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault breaks something, and repairs it before it returns.
type Fault struct {
	Name  string
	Every int // so much progress: a slow machine has as many faults as a fast one, and gets on
	Do    func() error
}

// Storm lets faults happen until ctx ends, none of them twice at once. It says how many there were, and when each was.
func Storm(ctx context.Context, progress func() int, faults ...Fault) (told string, log []string, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	times, failed := map[string]int{}, error(nil)
	for _, f := range faults {
		all.Go(func() {
			for {
				due := progress() + f.Every/2 + rand.N(f.Every)
				for progress() < due {
					select {
					case <-ctx.Done():
						return
					case <-time.After(50 * time.Millisecond):
					}
				}
				began := time.Now()
				err := f.Do()
				mu.Lock()
				times[f.Name]++
				log = append(log, Moment(began)+" "+f.Name)
				if err != nil && failed == nil {
					failed = fmt.Errorf("%s: %w", f.Name, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(times)) {
		counts = append(counts, fmt.Sprintf("%d × %s", times[name], name))
	}
	return strings.Join(counts, ", "), log, failed
}

// Moment is a time of day.
func Moment(t time.Time) string { return t.UTC().Format("15:04:05.000") }
