package mutant

import (
	"fmt"
	"slices"
)

// All are the mutants.
func All() []Mutant {
	return slices.Concat(claimMutants(), commitMutants(), fnMutants(), memoryMutants(), sealMutants(), serverMutants(), purgeMutants(), operationMutants(), messageMutants(), fleetMutants())
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
