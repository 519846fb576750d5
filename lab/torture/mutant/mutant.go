package mutant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Mutant is the library with a promise broken.
type Mutant struct {
	Name  string
	About string
	Edits []Edit

	// Faults and legs are those that bring it to light, if the workers do not do so by themselves.
	Faults []fault.Name
	// Settings are those of the servers, name=value: a promise can also be broken there.
	Settings []string
	// Rules are those of the checker of which a run must find one broken: a mutant that is found out by accident is not
	// found out.
	Rules []rule.Rule
	// Slow says that it takes more than some seconds to find it out.
	Slow bool
	// Duration of the first run; 3 s if it is 0.
	Duration time.Duration
}

// errStale is the error of a mutant of a library that has changed since.
var errStale = errors.New("the mutant no longer applies")

// Apply makes the edits, in their order, and returns the files that they change, by their path from the root of the
// repository.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	edited := make(map[string]string)
	for _, e := range m.Edits {
		if err := e.apply(root, edited); err != nil {
			return nil, err
		}
	}
	return edited, nil
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

// faults are those of its run, as -only has them.
func (m *Mutant) faults() []fault.Name {
	if len(m.Faults) == 0 {
		return []fault.Name{fault.None}
	}
	return m.Faults
}

func (m *Mutant) duration() time.Duration {
	if m.Duration > 0 {
		return m.Duration
	}
	return 3 * time.Second
}
