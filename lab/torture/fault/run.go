// Package fault injects faults into a torture run: into the worker processes, their connections,
// the sessions of the server, and the server itself.
//
// [Run] draws faults of a [Mix] from a seed, one every few hundred milliseconds. Every fault has a
// time limit, is healed by the code that injected it, and is logged as an [Event]. When Run
// returns, everything works again.
//
// To add a fault, add its name to name.go, and its kind to the list in connection.go, point.go,
// server.go or, for a fault of a worker process, in this file.
//
// A [Leg] is a scenario that needs a cluster of its own: a failover, a disk that is full or fails,
// a power loss, a clock that jumps.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
	"github.com/idem-go/idem/lab/torture/history"
)

// Workers are the processes to torture. Each runs in a slot, and the implementation starts another
// process in the slot of a process that was killed.
type Workers interface {
	Len() int
	// Signal sends a signal to the process in slot i.
	Signal(i int, sig syscall.Signal) error
	// Proxy returns the proxy that carries all connections of slot i. It outlives the process.
	Proxy(i int) *pgproxy.Proxy
}

// Target is what the faults break.
type Target struct {
	Cluster *cluster.Cluster // nil: no faults of sessions and of the server
	Workers Workers

	clock *clock // the clock and the disk of a Scene, if it has them
	disk  *disk
}

// Event describes one fault, after it was healed or given up.
type Event struct {
	Kind   Name
	At     time.Duration // time of the injection, by the clock of package history
	For    time.Duration // duration from At until the fault was healed
	Worker int           // the slot of the affected worker, -1 for all
	Err    string        // why it could not be injected or healed

	// Loses reports that writes which were acknowledged during the event may be lost. Keys and
	// effects are then lost together.
	Loses bool
	// EndsLeases reports that the leases of all processes behind a pooler ended during the event.
	EndsLeases bool
	// MovesClock reports that the clock of the database was wrong during the event.
	MovesClock bool
}

const (
	atOnce     = 4                // faults that run at the same time, in addition to one fault of the server
	actLimit   = 2 * time.Minute  // maximum duration of one fault, which may include the start of a standby
	healLimit  = 60 * time.Second // maximum duration of a repair; enough for the crash recovery of a server
	totalLimit = actLimit + healLimit
)

// errMissed is returned by a fault that found nothing to break: there was no connection, or no
// connection reached the point at which the fault waits.
var errMissed = errors.New("nothing to break")

// errHung is the error of a fault that did not return in time, although its context had ended. Its
// goroutine is abandoned.
var errHung = errors.New("it hangs, and was given up")

// bound calls f with a context that ends after actLimit, and returns the error of f. If f does not
// return within totalLimit, bound returns errHung and leaves f running.
func bound(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, actLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(totalLimit):
		return errHung
	}
}

// injection is one fault that is being injected.
type injection struct {
	Target
	rng *rand.Rand

	mu    sync.Mutex // guards event, which a fault that was given up may still write
	event Event
}

// Run injects faults until ctx ends, heals everything, and returns. The seed determines which
// faults are injected when, but not what the workers are doing at that moment. A fault that hangs
// ends the run with an error. Run calls log from several goroutines.
func Run(ctx context.Context, seed uint64, target Target, mix Mix, log func(Event)) error {
	kinds, err := mix.kinds(target.Cluster != nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots, server := make(chan struct{}, atOnce), make(chan struct{}, 1)
	var running sync.WaitGroup
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); sleep(ctx, time.Duration(rng.Float64()*2*float64(mix.Pause))); n++ {
		k, rng := draw(rng, kinds), rand.New(rand.NewPCG(seed, n))
		free := slots
		if k.Group == Server {
			// Only one fault of the server runs at a time. A second one is dropped, because waiting
			// would delay the faults of other groups.
			if free = server; len(server) > 0 {
				continue
			}
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		running.Go(func() {
			defer func() { <-free }()
			if err := target.inject(ctx, k, rng, log); errors.Is(err, errHung) {
				stop(fmt.Errorf("%s: %w", k.Name, err))
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); errors.Is(err, errHung) {
		return err
	}
	return heal(target)
}

// inject runs one fault, or gives it up, and logs it. A fault that found nothing to break is not
// logged and not an error.
func (t Target) inject(ctx context.Context, k Kind, rng *rand.Rand, log func(Event)) error {
	i := &injection{Target: t, rng: rng, event: Event{Kind: k.Name, Worker: -1}}
	i.strike()
	err := bound(ctx, func(ctx context.Context) error { return k.inject(ctx, i) })
	if errors.Is(err, errMissed) {
		return nil
	}
	i.note(func(e *Event) {
		e.For = history.Now() - e.At
		if err != nil {
			e.Err = err.Error()
		}
		log(*e)
	})
	return err
}

// note changes the event under its lock.
func (i *injection) note(write func(*Event)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	write(&i.event)
}

// strike sets the time of the event to now. A fault calls it at the moment at which it breaks
// something. Until then, the time of the event is the start of the injection.
func (i *injection) strike() { i.note(func(e *Event) { e.At = history.Now() }) }

// between returns a random duration from shortest to longest.
func (i *injection) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(i.rng.Int64N(int64(longest-shortest)+1))
}

// worker chooses a random worker and records it in the event.
func (i *injection) worker() int {
	worker := i.rng.IntN(i.Workers.Len())
	i.note(func(e *Event) { e.Worker = worker })
	return worker
}

// signal sends a signal to a worker. It returns errMissed if the slot has no process at this
// moment.
func (i *injection) signal(worker int, sig syscall.Signal) error {
	err := i.Workers.Signal(worker, sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return errMissed
	}
	return err
}

func (i *injection) kill(worker int) error { return i.signal(worker, syscall.SIGKILL) }

// heal removes every effect that a fault may have left behind.
func heal(t Target) error {
	return bound(context.Background(), func(ctx context.Context) error { return healAll(ctx, t) })
}

func healAll(ctx context.Context, t Target) error {
	for i := range t.Workers.Len() {
		_ = t.Workers.Signal(i, syscall.SIGCONT) // there may be no process at this moment
		proxy := t.Workers.Proxy(i)
		proxy.Admit()
		proxy.SetLatency(0)
		for _, conn := range proxy.Conns() {
			conn.Resume()
		}
	}
	if t.Cluster == nil {
		return nil
	}
	return revive(ctx, t.Cluster)
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func choose[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// breakages are the ways to break a connection that the client notices at once.
var breakages = []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup}

// Kind is one kind of fault.
type Kind struct {
	Name  Name
	Group Name
	// Possible is nil, or the reason why this machine cannot inject the fault.
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
	for _, k := range slices.Concat(workerKinds, pointKinds(), connectionKinds, sessionKinds, serverKinds(),
		resumptionKinds(), deliveryKinds) {
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

var workerKinds = []Kind{
	{Name: Kill, Group: Worker, weight: 6, inject: kill},
	{Name: Stop, Group: Worker, weight: 4, inject: stop},
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
