package goal

import (
	"fmt"
	"slices"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// commits is the goal for a disk that takes its time, against those who wait for it more than once. Committing twice is twice the flushes
// also for 8 clients, whose commits share them. The ratio of throughputs is 2 only where calls wait for the disk: where a plain transaction of
// one INSERT takes 0.4 ms on loopback, 8 clients of it have 2.0 and 1.9 times the throughput, where it takes 0.8 ms 1.6 and 1.4 (28 rounds).
func commits(name, rule string, limit float64) Goal {
	b := bound{limit, true}
	g := Goal{Name: name, Rule: fmt.Sprintf(rule, limit)}
	for _, business := range []string{result.Insert, result.Realistic} {
		for _, clients := range []int{1, 8} {
			point := first(business, result.Flush, clients)
			g.places = append(g.places, place{
				where: spell(point),
				needs: func(step, who string) bool {
					return step == point.Name() && (who == contestant.NameIdem || slices.Contains(committingTwice(), who))
				},
				judge: func(r *result.Results) finding {
					cell := r.Cell(point)
					best := fastestOf(cell, committingTwice())
					found := b.judge(cell.Throughputs(contestant.NameIdem, best))
					found.against = best
					return found
				},
			})
		}
	}
	return g
}

// committingTwice are the contestants that wait for a disk more than once.
func committingTwice() []string {
	var names []string
	for _, c := range contestant.All() {
		if c.Durable > 1 {
			names = append(names, c.Name)
		}
	}
	return names
}

// fastestOf is who has the highest throughput in the cell, empty if nobody was there.
func fastestOf(cell *result.Cell, names []string) string {
	best, most := "", 0.0
	for _, name := range names {
		if e := cell.Entry(name); e != nil {
			if median := measure.Of(e.PerSecond()).Median; median > most {
				best, most = name, median
			}
		}
	}
	return best
}
