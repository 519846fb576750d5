package mutant

import (
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// serverMutants break the durability of the server by its settings.
func serverMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-fsync", About: "the server acknowledges what is not on its disk, and loses power",
			Faults: []fault.Name{fault.PowerLoss}, Settings: []string{"fsync=off"}, Rules: []rule.Rule{rule.Success, rule.Recovers},
		},
	}
}
