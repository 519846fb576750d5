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

// Mutant is the library with one promise broken.
type Mutant struct {
	Name  string
	About string
	Edits []Edit

	// Faults are the faults and legs that reveal it, if the workload alone does not.
	Faults []fault.Name
	// Settings are settings of the servers, name=value. A promise can also be broken by a setting.
	Settings []string
	// Rules are rules of the checker of which a run must find one broken. A mutant that is found
	// only by another rule counts as not found.
	Rules []rule.Rule
	// Slow reports that finding the violation takes more than some seconds.
	Slow bool
	// Duration is the duration of the first run, 3 s by default.
	Duration time.Duration
}

// errStale is returned if an edit no longer applies because the library has changed.
var errStale = errors.New("the mutant no longer applies")

// Apply makes the edits in their order. It returns the changed files by their path from the root of
// the repository.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	edited := make(map[string]string)
	for _, e := range m.Edits {
		if err := e.apply(root, edited); err != nil {
			return nil, err
		}
	}
	return edited, nil
}

// Find returns the mutant with the name.
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

// faults returns the faults and legs of a run, in the form of the flag -only.
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
