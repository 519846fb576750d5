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

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/history"
)

const atOnce = 4 // faults that run at the same time, in addition to one fault of the server

// errMissed is returned by a fault that found nothing to break: there was no connection, or no
// connection reached the point.
var errMissed = errors.New("nothing to break")

// injection is one fault that is being injected.
type injection struct {
	Target
	rng *rand.Rand

	mu    sync.Mutex // guards event, which a fault that was given up may still write
	event Event
}

// Run injects faults until ctx ends, heals everything, and returns. The seed determines which
// faults are injected when, but not what the workers are doing at that moment. Run calls log from
// several goroutines, one call at a time.
func Run(ctx context.Context, seed uint64, target Target, mix Mix, log func(Event)) error {
	kinds, err := mix.kinds(target.Cluster != nil)
	if err != nil {
		return err
	}
	return newRun(target, injectLimits, log).all(ctx, seed, kinds, mix.pause())
}

type run struct {
	target  Target
	limits  limits
	slots   chan struct{} // semaphore for faults of workers, connections and sessions
	server  chan struct{} // semaphore for the one fault of the server
	running sync.WaitGroup

	mu   sync.Mutex // guards the fields below and the calls of log
	log  func(Event)
	hung []Name
	lost bool // a fault of the server hangs; no other code may touch the server
}

func newRun(target Target, limits limits, log func(Event)) *run {
	return &run{
		target: target, limits: limits, log: log, slots: make(chan struct{}, atOnce), server: make(chan struct{}, 1),
	}
}

// all injects faults until ctx ends or a fault of the server hangs. Then it waits for the running
// faults and heals the target. It returns an error if any fault hung.
func (r *run) all(ctx context.Context, seed uint64, kinds []Kind, pause time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); sleep(ctx, time.Duration(rng.Float64()*2*float64(pause))); n++ {
		r.start(ctx, stop, draw(rng, kinds), rand.New(rand.NewPCG(seed, n)))
	}
	r.running.Wait()
	var err error
	if len(r.hung) > 0 {
		err = fmt.Errorf("%w: %v", errHung, r.hung)
	}
	if r.lost {
		r.target.Cluster = nil
	}
	return errors.Join(err, heal(r.target))
}

// start runs a fault in a goroutine, as soon as one of the slots is free. A fault of the server is
// dropped if another one is running: waiting for it would delay all other faults.
func (r *run) start(ctx context.Context, stop func(), k Kind, rng *rand.Rand) {
	slots := r.slots
	if k.Group == Server {
		slots = r.server
		if len(slots) > 0 {
			return
		}
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	// A fault of the server may have hung, which frees its slot and ends ctx. select picks at
	// random between two ready cases, so it may have taken the slot.
	if ctx.Err() != nil {
		<-slots
		return
	}
	r.running.Go(func() {
		defer func() { <-slots }()
		err := r.target.inject(ctx, r.limits, k, rng, r.report)
		if errors.Is(err, errHung) {
			r.giveUp(k, stop)
		}
	})
}

// giveUp records that k hangs. If k is a fault of the server, the run ends, because the state of
// the server is unknown.
func (r *run) giveUp(k Kind, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung = append(r.hung, k.Name)
	if k.Group == Server {
		r.lost = true
		stop()
	}
}

func (r *run) report(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log(e)
}

// inject runs one fault, or gives it up, and logs it. A fault that found nothing to break is not
// logged and not an error.
func (t Target) inject(ctx context.Context, l limits, k Kind, rng *rand.Rand, log func(Event)) error {
	i := &injection{Target: t, rng: rng, event: Event{Kind: k.Name, Worker: -1}}
	i.strike()
	err := l.bound(ctx, func(ctx context.Context) error { return k.inject(ctx, i) })
	if errors.Is(err, errMissed) {
		return nil
	}
	log(i.over(err))
	return err
}

// over returns the event of a fault that has returned or was given up.
func (i *injection) over(err error) Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.event
	e.For = history.Now() - e.At
	if err != nil {
		e.Err, e.Hung = err.Error(), errors.Is(err, errHung)
	}
	return e
}

// note changes the event under its lock.
func (i *injection) note(write func(*Event)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	write(&i.event)
}

// strike sets the time of the event to now. A fault calls it at the moment at which it breaks
// something; before, the time is the start of the injection.
func (i *injection) strike() { i.note(func(e *Event) { e.At = history.Now() }) }

func (i *injection) detail(format string, args ...any) {
	i.note(func(e *Event) { e.Detail = fmt.Sprintf(format, args...) })
}

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

func (i *injection) kill(worker int) error {
	err := i.signal(worker, syscall.SIGKILL)
	i.note(func(e *Event) { e.Kills = err == nil })
	return err
}

// heal removes every effect that a fault may have left behind, within healLimit.
func heal(t Target) error {
	return limits{act: healLimit, heal: healLimit}.bound(context.Background(), func(ctx context.Context) error { return healAll(ctx, t) })
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

// choose returns a random element of from.
func choose[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// breakages are the ways to break a connection that the client notices at once.
var breakages = []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup}
