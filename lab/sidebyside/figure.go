package sidebyside

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Quantile is that of sorted durations, the nearest of them.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}

// Milliseconds is a duration as a number of them.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Ratios divides round by round: a machine that gets slower gets slower for both.
func Ratios(of, to []float64) (all []float64) {
	for i := range min(len(of), len(to)) {
		all = append(all, of[i]/to[i])
	}
	return all
}

// Spread is the median of some figures, and the least and the greatest of them.
type Spread struct{ Median, Least, Greatest float64 }

// SpreadOf is that of some figures, zero if there are none.
func SpreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{median, sorted[0], sorted[len(sorted)-1]}
}

func (s Spread) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Greatest)
}
