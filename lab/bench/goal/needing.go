package goal

import "regexp"

// Needing tells who has to take which step for the goals that a pattern names.
func Needing(named *regexp.Regexp) func(step, contestant string) bool {
	var chosen []Goal
	for _, g := range All() {
		if named.MatchString(g.Name) {
			chosen = append(chosen, g)
		}
	}
	return func(step, contestant string) bool {
		for _, g := range chosen {
			if g.Needs(step, contestant) {
				return true
			}
		}
		return false
	}
}
