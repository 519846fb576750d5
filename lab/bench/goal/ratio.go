package goal

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// bound is at most or at least a limit.
type bound struct {
	limit   float64
	atLeast bool
}

func (b bound) holds(figure float64) bool {
	if b.atLeast {
		return figure >= b.limit
	}
	return figure <= b.limit
}

// judge looks at the median of the rounds. If some rounds hold and others do not, and a coin would often do the same, the goal is
// neither met nor missed.
func (b bound) judge(ratios []float64) finding {
	if len(ratios) == 0 {
		return finding{}
	}
	s := measure.Of(ratios)
	measured := fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Min, s.Max)
	more := most(b.count(ratios), len(ratios))
	if isDecided(more, len(ratios)) {
		return finding{measured: measured, verdict: verdict(b.holds(s.Median))}
	}
	return finding{measured: measured + ", " + wanting(more, len(ratios)), verdict: Undecided}
}

// count returns how many of the ratios hold.
func (b bound) count(ratios []float64) (n int) {
	for _, ratio := range ratios {
		if b.holds(ratio) {
			n++
		}
	}
	return n
}

// latest is a goal for median latencies, of one contestant to another.
func latest(name, rule string, limit float64, of, to string, points ...result.Point) Goal {
	return compared(name, rule, bound{limit: limit}, (*result.Cell).P50s, of, to, points)
}

// fastest is a goal for throughputs.
func fastest(name, rule string, limit float64, of, to string, points ...result.Point) Goal {
	return compared(name, rule, bound{limit, true}, (*result.Cell).Throughputs, of, to, points)
}

// cheapest is a goal for processor times.
func cheapest(name, rule string, limit float64, of, to string, points ...result.Point) Goal {
	return compared(name, rule, bound{limit: limit}, (*result.Cell).Processors, of, to, points)
}

func compared(name, rule string, b bound, ratios func(*result.Cell, string, string) []float64, of, to string, points []result.Point) Goal {
	g := Goal{Name: name, Rule: fmt.Sprintf(rule, b.limit)}
	for _, point := range points {
		g.places = append(g.places, place{
			where: spell(point),
			needs: func(step, contestant string) bool {
				return step == point.Name() && (contestant == of || contestant == to)
			},
			judge: func(r *result.Results) finding { return b.judge(ratios(r.Cell(point), of, to)) },
		})
	}
	return g
}

// spell tells a point of a goal whose rule has already told the rest.
func spell(p result.Point) string {
	what := "one insert"
	switch {
	case p.Work == result.Replay:
		what = "replay"
	case p.Business == result.Realistic:
		what = "realistic"
	}
	return what + ", " + result.Clients(p.Clients)
}
