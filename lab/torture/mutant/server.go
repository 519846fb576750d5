package mutant

import (
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Broken: the settings of a server that keeps what it acknowledges.
func serverMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-fsync", About: "the server acknowledges what is not on its disk, and loses power",
			Faults: []fault.Name{fault.PowerLoss}, Settings: []string{"fsync=off"}, Rules: []rule.Rule{rule.Success, rule.Recovers},
		},
	}
}
