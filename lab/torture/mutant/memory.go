package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/rule"
)

// memoryMutants break what duplicates in one process share.
func memoryMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-hash-in-memory", About: "whoever waits in memory is given the answer without a look at its hash",
			Rules: []rule.Rule{rule.Hash},
			Edits: []Edit{{"idem.leaderResult.share", "case o.hash != hash", "case false"}},
		},
		{
			Name: "wrong-key", About: "whoever waits in memory is given the answer of another key of its scope",
			Rules: []rule.Rule{rule.OwnKey},
			Edits: []Edit{{"idem.call.do", "flightID{pool: pool, scope: c.scope, key: c.key}", "flightID{pool: pool, scope: c.scope}"}},
		},
		{
			Name: "no-handover", About: "a leader that fails hands over to nobody: those who wait for it do so in vain",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.Holder},
			Edits:    []Edit{{"internal/flight.Flight.Abandon", "f.next <- struct{}{}", ""}},
		},
	}
}
