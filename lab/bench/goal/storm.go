package goal

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/bench/result"
)

// storm is the goal for bystanders of a hot key.
func storm(name, rule string, limit float64) Goal {
	return Goal{Name: name, Rule: fmt.Sprintf(rule, limit), places: []place{{
		where: "one insert, 8 bystanders",
		needs: func(step, who string) bool { return step == result.StormOf(who) && who == contestant.NameIdem },
		judge: func(r *result.Results) finding {
			s := r.Storm(contestant.NameIdem)
			if s == nil || s.CalmP99 == 0 {
				return finding{}
			}
			ratio, windows := s.StormP99/s.CalmP99, measure.Of(measure.Ratios(s.Stormy, s.Calm))
			return finding{
				measured: fmt.Sprintf("%.3f (windows: %.3f to %.3f)", ratio, windows.Min, windows.Max),
				verdict:  verdict(bound{limit: limit}.holds(ratio)),
			}
		},
	}}}
}
