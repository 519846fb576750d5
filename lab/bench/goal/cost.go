package goal

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// cost is a goal for something that is counted, and not timed.
type cost struct {
	where string
	of    func(result.Profile) float64
	base  func(*result.Results, func(result.Profile) float64) (float64, bool) // that is subtracted
	most  float64
}

func walFirst(p result.Profile) float64     { return p.WAL.First }
func walReplay(p result.Profile) float64    { return p.WAL.Replay }
func allocsFirst(p result.Profile) float64  { return p.Allocs.First }
func allocsReplay(p result.Profile) float64 { return p.Allocs.Replay }

// alone subtracts nothing.
func alone(*result.Results, func(result.Profile) float64) (float64, bool) { return 0, true }

// overPlain subtracts what the plain transaction costs.
func overPlain(r *result.Results, of func(result.Profile) float64) (float64, bool) {
	plain := r.Profile(contestant.NamePlain)
	if plain == nil {
		return 0, false
	}
	return of(*plain), true
}

func costs(name, rule string, all ...cost) Goal {
	g := Goal{Name: name, Rule: rule}
	for _, c := range all {
		g.places = append(g.places, place{
			where: "one insert, " + c.where,
			needs: func(step, who string) bool {
				return step == result.ProfileOf(who) && (who == contestant.NameIdem || who == contestant.NamePlain)
			},
			judge: c.judge,
		})
	}
	return g
}

func (c cost) judge(r *result.Results) finding {
	idem := r.Profile(contestant.NameIdem)
	base, known := c.base(r, c.of)
	if idem == nil || !known {
		return finding{}
	}
	figure := c.of(*idem) - base
	return finding{measured: fmt.Sprintf("%.1f", figure), verdict: verdict(figure <= c.most)}
}
