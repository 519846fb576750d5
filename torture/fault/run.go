package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/torture/history"
)

const (
	atOnce    = 4                // faults under way at the same time
	healLimit = 60 * time.Second // a recovery included
)

// errMissed is for a fault that found nothing to break: there was no connection, or its point was not reached.
var errMissed = errors.New("nothing to break")

// injection is one fault under way.
type injection struct {
	Target
	rng   *rand.Rand
	event Event
}

// Run injects faults until ctx ends, heals everything, and returns. What is injected when follows from the seed; what it
// meets there depends on the moment. log is called from several goroutines, one at a time.
func Run(ctx context.Context, seed uint64, target Target, mix Mix, log func(Event)) error {
	kinds, err := mix.kinds(target.Cluster != nil)
	if err != nil {
		return err
	}
	if mix.Pause == 0 {
		mix.Pause = defaultPause
	}
	r := &run{target: target, log: log, slots: make(chan struct{}, atOnce)}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); sleep(ctx, time.Duration(rng.Float64()*2*float64(mix.Pause))); n++ {
		r.inject(ctx, draw(rng, kinds), rand.New(rand.NewPCG(seed, n)))
	}
	r.running.Wait()
	return heal(target)
}

type run struct {
	target  Target
	slots   chan struct{}
	running sync.WaitGroup
	server  sync.Mutex // one fault of the server at a time
	logging sync.Mutex
	log     func(Event)
}

// inject starts one fault as soon as there are not too many.
func (r *run) inject(ctx context.Context, k Kind, rng *rand.Rand) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	r.running.Go(func() {
		defer func() { <-r.slots }()
		if k.Group == Server {
			r.server.Lock()
			defer r.server.Unlock()
		}
		if ctx.Err() == nil {
			r.target.inject(ctx, k, rng, r.report)
		}
	})
}

func (r *run) report(e Event) {
	r.logging.Lock()
	defer r.logging.Unlock()
	r.log(e)
}

// inject does one fault from its beginning to its end.
func (t Target) inject(ctx context.Context, k Kind, rng *rand.Rand, log func(Event)) {
	i := &injection{Target: t, rng: rng, event: Event{Kind: k.Name, Worker: -1}}
	i.strike()
	i.finish(k.inject(ctx, i), log)
}

// finish logs what was done, if something was.
func (i *injection) finish(err error, log func(Event)) {
	if errors.Is(err, errMissed) {
		return
	}
	i.event.For = history.Now() - i.event.At
	if err != nil {
		i.event.Err = err.Error()
	}
	log(i.event)
}

// strike is called when it happens.
func (i *injection) strike() { i.event.At = history.Now() }

func (i *injection) detail(format string, args ...any) { i.event.Detail = fmt.Sprintf(format, args...) }

// between is a random time.
func (i *injection) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(i.rng.Int64N(int64(longest-shortest)+1))
}

// worker chooses whom the fault is for.
func (i *injection) worker() int {
	i.event.Worker = i.rng.IntN(i.Workers.Len())
	return i.event.Worker
}

// signal sends a signal to a worker. There may be none at this moment: then there is nothing to break.
func (i *injection) signal(worker int, sig syscall.Signal) error {
	err := i.Workers.Signal(worker, sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return errMissed
	}
	return err
}

// heal undoes whatever can be left of any fault.
func heal(t Target) error {
	ctx, cancel := context.WithTimeout(context.Background(), healLimit)
	defer cancel()
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

// sleep reports false if the context has ended.
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

// choose picks one of several.
func choose[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// breakages are the ways to lose a connection of which a client is told.
var breakages = []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup}
