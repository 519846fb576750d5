package mutant

import (
	"github.com/idem-go/idem/torture/rule"
)

// Broken: what duplicates in one process share.
func memoryMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-hash-in-memory", About: "whoever waits in memory is given the answer without a look at its hash",
			Rules: []rule.Rule{rule.Hash},
			Edits: []Edit{{"wait.go", "	case o.hash != c.hash:\n", "	case false:\n"}},
		},
		{
			Name: "wrong-key", About: "whoever waits in memory is given the answer of another key of its scope",
			Rules: []rule.Rule{rule.OwnKey},
			Edits: []Edit{{"wait.go", "flightID{pool: c.pool, scope: c.scope, key: c.key}", "flightID{pool: c.pool, scope: c.scope}"}},
		},
	}
}
