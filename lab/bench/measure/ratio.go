package measure

import (
	"math"
	"slices"
)

// Spread is the median of some figures, and the least and the greatest of them.
type Spread struct{ Median, Min, Max float64 }

// Of returns the spread of the figures, NaN if there are none.
func Of(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(figures))
	return Spread{Median: Quantile(sorted, 0.5), Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Ratios divides figure by figure: what was measured in the same round is compared, so that a machine that gets slower
// gets slower for both.
func Ratios(of, to []float64) []float64 {
	var ratios []float64
	for i := range min(len(of), len(to)) {
		if to[i] > 0 {
			ratios = append(ratios, of[i]/to[i])
		}
	}
	return ratios
}

// Quantile returns the q-th quantile of sorted figures, between the two nearest of them where it falls between.
func Quantile[T ~int64 | ~float64](sorted []T, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below == len(sorted)-1 {
		return float64(sorted[below])
	}
	fraction := at - float64(below)
	return float64(sorted[below])*(1-fraction) + float64(sorted[below+1])*fraction
}
