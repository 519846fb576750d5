package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// Kind is one kind of fault.
type Kind struct {
	Name  Name
	Group Name
	// Possible is nil, or why this machine cannot inject the fault.
	Possible error

	weight int // the relative frequency of the kind
	inject func(context.Context, *injection) error
}

// Mix selects the faults that Run injects, and their rate.
type Mix struct {
	// Only has names or groups of kinds. If it is empty, Run injects all possible kinds, except
	// those of operations (Resumption) and of messages (Delivery).
	Only  []Name
	Pause time.Duration // the mean time between two faults
}

// kinds returns the kinds of the mix. Without a cluster it leaves out the faults of sessions and of
// the server. It fails if m.Only has an unknown name or the name of a fault that this machine
// cannot inject, and if no kind is left.
func (m Mix) kinds(cluster bool) (chosen []Kind, err error) {
	var names []Name
	for _, k := range slices.Concat(workerKinds(), pointKinds(), connectionKinds(), sessionKinds(), serverKinds(), resumptionKinds(), deliveryKinds()) {
		names = append(names, k.Name, k.Group)
		byName, byGroup := slices.Contains(m.Only, k.Name), slices.Contains(m.Only, k.Group)
		switch {
		case byName && k.Possible != nil:
			return nil, fmt.Errorf("fault %q: %w", k.Name, k.Possible)
		case k.Possible != nil || !cluster && (k.Group == Session || k.Group == Server):
		case byName || byGroup || len(m.Only) == 0 && k.Group != Resumption && k.Group != Delivery:
			chosen = append(chosen, k)
		}
	}
	for _, name := range m.Only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no fault %q; there are: %q", name, names)
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no fault is left to inject")
	}
	return chosen, nil
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

func workerKinds() []Kind {
	return []Kind{
		{Name: Kill, Group: Worker, weight: 6, inject: kill},
		{Name: Stop, Group: Worker, weight: 4, inject: stop},
	}
}

func kill(_ context.Context, i *injection) error { return i.kill(i.worker()) }

func stop(ctx context.Context, i *injection) error {
	worker := i.worker()
	if err := i.signal(worker, syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, i.between(10*time.Millisecond, 2*time.Second))
	// If the worker was killed meanwhile, its successor gets the signal, which does not affect it.
	_ = i.Workers.Signal(worker, syscall.SIGCONT)
	return nil
}
