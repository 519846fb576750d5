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

// Kind is one kind of fault.
type Kind struct {
	Name  Name
	Group Name
	About string
	// Possible is nil, or why this machine cannot inject the fault.
	Possible error

	weight int // the relative frequency of the kind
	inject func(context.Context, *injection) error
}

// Kinds returns all faults that Run can inject.
func Kinds() []Kind {
	return slices.Concat(workerKinds(), pointKinds(), connectionKinds(), sessionKinds(), serverKinds(), resumptionKinds(), deliveryKinds())
}

// Mix selects the faults that Run injects, and their rate.
type Mix struct {
	// Only has names or groups of kinds. If it is empty, Run injects all possible kinds, except
	// those of operations (Resumption) and of messages (Delivery).
	Only []Name
	// Pause is the mean time between two faults, 300 ms by default.
	Pause time.Duration
}

const defaultPause = 300 * time.Millisecond

func (m Mix) pause() time.Duration {
	if m.Pause == 0 {
		return defaultPause
	}
	return m.Pause
}

// kinds returns the kinds of the mix. Without a cluster it leaves out the faults of sessions and of
// the server. It fails if m.Only has an unknown name or the name of a fault that this machine
// cannot inject, and if no kind is left.
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

// draw returns a random kind. The probability of a kind is its weight over the sum of all weights.
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
