package mutant

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mutant is the library with a promise broken.
type Mutant struct {
	Name  string
	About string
	Edits []Edit

	// Faults are those that bring it to light, as for -only of a run.
	Faults string
	// Settings are those of the servers, name=value: a promise can also be broken there.
	Settings []string
	// Rules are those of the checker of which a run must find one broken: a mutant that is found out by accident is not
	// found out.
	Rules []string
	// Duration of a run; 3 s if it is 0.
	Duration time.Duration
}

// Edit replaces a piece of a file, which must be there exactly once.
type Edit struct {
	File     string // from the root of the repository
	Old, New string
}

func (e Edit) apply(source string) (string, error) {
	if n := strings.Count(source, e.Old); n != 1 {
		return "", fmt.Errorf("the mutant no longer applies: %s has %d times %q", e.File, n, e.Old)
	}
	return strings.Replace(source, e.Old, e.New, 1), nil
}

// Find returns the mutant of that name.
func Find(name string) (*Mutant, error) {
	all := All()
	i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
	if i < 0 {
		var names []string
		for _, m := range all {
			names = append(names, m.Name)
		}
		return nil, fmt.Errorf("no mutant %q; there are: %s", name, strings.Join(names, ", "))
	}
	return &all[i], nil
}

func (m *Mutant) duration() time.Duration {
	if m.Duration > 0 {
		return m.Duration
	}
	return 3 * time.Second
}
