package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is one way to break something.
type Kind struct {
	Name  Name
	Group Name
	About string
	// Possible is nil, or why this machine cannot do it.
	Possible error

	weight int // how often it is drawn, in relation to the others
	inject func(context.Context, *injection) error
}

// Kinds are all faults that Run can inject.
func Kinds() []Kind {
	return slices.Concat(workerKinds(), pointKinds(), connectionKinds(), sessionKinds(), serverKinds(), resumptionKinds(), deliveryKinds())
}

// Mix says which faults Run injects, and how often.
type Mix struct {
	// Only are the names or groups of kinds; all that are possible if there are none.
	Only []Name
	// Pause is how long it is from one fault to the next, on average; 300 ms if it is 0.
	Pause time.Duration
}

const defaultPause = 300 * time.Millisecond

func (m Mix) pause() time.Duration {
	if m.Pause == 0 {
		return defaultPause
	}
	return m.Pause
}

// kinds returns what the mix consists of, without what would need a cluster if there is none. To ask for what does not
// exist, or cannot be done here, is an error.
func (m Mix) kinds(cluster bool) ([]Kind, error) {
	var chosen []Kind
	known := make(map[Name]bool)
	for _, k := range Kinds() {
		known[k.Name], known[k.Group] = true, true
		byName := slices.Contains(m.Only, k.Name)
		byGroup := slices.Contains(m.Only, k.Group)
		switch {
		case byName && k.Possible != nil:
			return nil, fmt.Errorf("fault %q: %w", k.Name, k.Possible)
		case k.Possible != nil || !cluster && (k.Group == Session || k.Group == Server):
		case byName || byGroup || len(m.Only) == 0 && k.Group != Resumption && k.Group != Delivery:
			chosen = append(chosen, k)
		}
	}
	for _, name := range m.Only {
		if !known[name] {
			return nil, fmt.Errorf("there is no fault %q; there are: %s", name, strings.Join(names(), ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no fault is left to inject")
	}
	return chosen, nil
}

func names() []string {
	var all []string
	for _, k := range Kinds() {
		all = append(all, string(k.Name))
	}
	return all
}

// draw chooses a kind by weight.
func draw(rng *rand.Rand, kinds []Kind) Kind {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := rng.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("unreachable")
}
