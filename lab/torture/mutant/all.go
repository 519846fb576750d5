package mutant

import (
	"fmt"
	"slices"
)

// The files that several edits are of. Edits of queries are of what sqlc made of them, which is what is built.
const (
	queries   = "internal/db/records.sql.go"
	migration = "migrations/00001_records.sql"
)

// All are the mutants.
func All() []Mutant {
	return slices.Concat(claimMutants(), commitMutants(), fnMutants(), memoryMutants(), sealMutants(), serverMutants(), purgeMutants(), operationMutants(), messageMutants())
}

// Sample is one mutant for each promise, as far as one is soon found out: those whose first rule no earlier one has.
func Sample() []Mutant {
	var sample []Mutant
	for _, m := range All() {
		known := func(s Mutant) bool { return s.Rules[0] == m.Rules[0] }
		if !m.Slow && !slices.ContainsFunc(sample, known) {
			sample = append(sample, m)
		}
	}
	return sample
}

// Conditions are the mutants that differ in what is done to their servers and workers, without what is wrong with them.
func Conditions(of []Mutant) []Mutant {
	var conditions []Mutant
	seen := make(map[string]bool)
	for _, m := range of {
		m.Settings = nil // those break a promise as well
		if faults := fmt.Sprint(m.Faults); !seen[faults] {
			seen[faults] = true
			conditions = append(conditions, m)
		}
	}
	return conditions
}
