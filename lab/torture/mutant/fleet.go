package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// fleetMutants break the move of a tenant to another cluster.
func fleetMutants() []Mutant {
	return []Mutant{
		{
			Name: "move-without-fence", About: "the old home of a tenant that moves commits what the mover does not see any more",
			Edits: []Edit{{
				In:  "example/fleet.move.raise",
				Old: "batch.Queue(`SELECT pg_advisory_xact_lock(1718379892, hashtext($1))`, m.tenant)",
				New: "",
			}},
			Faults: []fault.Name{fault.Fleet}, Rules: []rule.Rule{rule.Tenant}, Slow: true, Duration: 20 * time.Second,
		},
	}
}
