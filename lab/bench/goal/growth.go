package goal

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/result"
)

// growth is the goal for larger tables.
func growth(name, rule string, limit float64) Goal {
	g := Goal{Name: name, Rule: fmt.Sprintf(rule, limit)}
	for _, point := range result.GrowthPoints() {
		for _, records := range result.GrowthSizes()[1:] {
			g.places = append(g.places, place{
				where: fmt.Sprintf("%s records, %s", result.Grouped(float64(records)), point.Spell()),
				needs: func(step, _ string) bool { return step == result.Growth },
				judge: func(r *result.Results) finding {
					cell := r.Cell(point)
					entry := cell.WithRecords(records)
					if entry == nil {
						return finding{}
					}
					return bound{limit: limit}.judge(cell.P50s(entry.Name, cell.Unit))
				},
			})
		}
	}
	return g
}
