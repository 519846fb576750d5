package goal

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// textbook is the goal that no one saves anything by writing the pattern by hand. Of the log of a first run it says nothing: what the
// pattern leaves is less than the two writes that a record of idem's takes, and goal/wal is about what is beside those.
func textbook(name, rule string) Goal {
	both := func(who string) bool { return who == contestant.NameIdem || who == contestant.NameTextbook }
	profiled := func(step, who string) bool { return both(who) && step == result.ProfileOf(who) }
	g := Goal{Name: name, Rule: rule, places: []place{{
		where: "time, in every cell with both",
		needs: func(step, who string) bool {
			return both(who) && step != result.ProfileOf(who) && step != result.StormOf(who)
		},
		judge: judgeTime,
	}}}
	for _, c := range []struct {
		where string
		of    func(result.Profile) float64
	}{
		{"round trips of a first run", func(p result.Profile) float64 { return p.Trips.Insert }},
		{"round trips of a replay", func(p result.Profile) float64 { return p.Trips.Replay }},
		{"write-ahead log of a replay", walReplay},
		{"bytes stored", func(p result.Profile) float64 { return p.Storage }},
		{"allocations of a first run", allocsFirst},
		{"allocations of a replay", allocsReplay},
	} {
		g.places = append(g.places, place{where: c.where, needs: profiled, judge: func(r *result.Results) finding {
			idem, by := r.Profile(contestant.NameIdem), r.Profile(contestant.NameTextbook)
			if idem == nil || by == nil {
				return finding{}
			}
			return finding{measured: fmt.Sprintf("%.1f against %.1f", c.of(*idem), c.of(*by)), verdict: verdict(c.of(*idem) <= c.of(*by))}
		}})
	}
	return g
}

// judgeTime names the cells where the textbook is cheaper.
func judgeTime(r *result.Results) finding {
	compared, cheaper := 0, []string{}
	for i := range r.Cells {
		cell := &r.Cells[i]
		// As a multiple of idem's cost: below 1, the textbook is ahead.
		ratios := cell.P50s(contestant.NameTextbook, contestant.NameIdem)
		if cell.Setting.Clients > 1 {
			ratios = cell.Throughputs(contestant.NameIdem, contestant.NameTextbook)
		}
		if len(ratios) == 0 {
			continue
		}
		compared++
		if ahead(ratios) {
			cheaper = append(cheaper, fmt.Sprintf("%s (%.3f)", cell.Name, measure.Of(ratios).Median))
		}
	}
	if compared == 0 {
		return finding{}
	}
	measured := fmt.Sprintf("cheaper in %d of %d cells", len(cheaper), compared)
	if len(cheaper) > 0 {
		measured += ": " + strings.Join(cheaper, ", ")
	}
	return finding{measured: measured, verdict: verdict(len(cheaper) == 0)}
}

// chance is how seldom a coin has to do what the rounds did, so that it was not chance. There are some twenty cells.
const chance = 0.01

// ahead tells whether so many of the ratios are below one that it is no chance (a sign test).
func ahead(ratios []float64) bool {
	below, decided := 0, 0
	for _, ratio := range ratios {
		if ratio != 1 {
			decided++
		}
		if ratio < 1 {
			below++
		}
	}
	return decided > 0 && atLeastHeads(below, decided) < chance
}

// atLeastHeads is the probability of so many heads or more in n throws.
func atLeastHeads(heads, n int) float64 {
	ways, sum, all := 1.0, 0.0, 1.0
	for k := range n + 1 {
		if k >= heads {
			sum += ways
		}
		ways = ways * float64(n-k) / float64(k+1)
	}
	for range n {
		all *= 2
	}
	return sum / all
}
