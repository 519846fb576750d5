package mutant

import (
	"fmt"
	"slices"
)

// All returns all mutants.
func All() []Mutant {
	return slices.Concat(claimMutants(), commitMutants(), fnMutants(), memoryMutants(), sealMutants(), serverMutants(), purgeMutants(), operationMutants(), messageMutants(), fleetMutants())
}

// Sample returns one mutant for each promise whose violation is found quickly. These are the
// mutants that are not Slow and whose first rule is not the first rule of an earlier mutant.
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

// Conditions returns the first mutant for each distinct set of Faults, without its Settings. The
// unmodified library must pass under the conditions of each of them.
func Conditions(of []Mutant) []Mutant {
	var conditions []Mutant
	seen := make(map[string]bool)
	for _, m := range of {
		m.Settings = nil // settings can break a promise too
		if faults := fmt.Sprint(m.Faults); !seen[faults] {
			seen[faults] = true
			conditions = append(conditions, m)
		}
	}
	return conditions
}
