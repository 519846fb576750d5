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

// Storm lets faults happen until ctx ends, none of them twice at once. It says how many there were.
func Storm(ctx context.Context, progress func() int, faults ...Fault) (string, error) {
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
				err := f.Do()
				mu.Lock()
				times[f.Name]++
				if err != nil && failed == nil {
					failed = fmt.Errorf("%s: %w", f.Name, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var told []string
	for _, name := range slices.Sorted(maps.Keys(times)) {
		told = append(told, fmt.Sprintf("%d × %s", times[name], name))
	}
	return strings.Join(told, ", "), failed
}
