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

const atOnce = 4 // faults under way at the same time, besides one of the server

// errMissed is for a fault that found nothing to break: there was no connection, or its point was not reached.
var errMissed = errors.New("nothing to break")

// injection is one fault under way.
type injection struct {
	Target
	rng *rand.Rand

	mu    sync.Mutex // whoever gives an injection up looks at its event while it may still be written
	event Event
}

// Run injects faults until ctx ends, heals everything, and returns. What is injected when follows from the seed; what it
// meets there depends on the moment. log is called from several goroutines, one at a time.
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
	slots   chan struct{} // of faults of workers, connections and sessions
	server  chan struct{} // of the one fault of the server
	running sync.WaitGroup

	mu   sync.Mutex // of what follows, and of calls of log
	log  func(Event)
	hung []Name
	lost bool // a fault of the server hangs: nobody else may touch the server
}

func newRun(target Target, limits limits, log func(Event)) *run {
	return &run{
		target: target, limits: limits, log: log, slots: make(chan struct{}, atOnce), server: make(chan struct{}, 1),
	}
}

// all injects faults until ctx ends, or until one of the server hangs. That any has hung is an error.
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

// start starts one fault as soon as there are not too many. One of the server is left out while another is under way:
// to wait for that would keep others from happening.
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
	if ctx.Err() != nil { // a fault of the server has hung: its place was free, and nobody may take it
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

// giveUp goes on without the fault that hangs. If that is one of the server, nothing more can be done to the server.
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

// inject does one fault from its beginning to its end, or gives it up, and logs it. What was missed is no error.
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

// over is the event when nobody waits for the injection any more.
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

// note writes something down in the event.
func (i *injection) note(write func(*Event)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	write(&i.event)
}

// strike is called when it happens.
func (i *injection) strike() { i.note(func(e *Event) { e.At = history.Now() }) }

func (i *injection) detail(format string, args ...any) {
	i.note(func(e *Event) { e.Detail = fmt.Sprintf(format, args...) })
}

// between is a random time.
func (i *injection) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(i.rng.Int64N(int64(longest-shortest)+1))
}

// worker chooses whom the fault is for.
func (i *injection) worker() int {
	worker := i.rng.IntN(i.Workers.Len())
	i.note(func(e *Event) { e.Worker = worker })
	return worker
}

// signal sends a signal to a worker. There may be none at this moment: then there is nothing to break.
func (i *injection) signal(worker int, sig syscall.Signal) error {
	err := i.Workers.Signal(worker, sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return errMissed
	}
	return err
}

// kill kills a worker.
func (i *injection) kill(worker int) error {
	err := i.signal(worker, syscall.SIGKILL)
	i.note(func(e *Event) { e.Kills = err == nil })
	return err
}

// heal undoes whatever can be left of any fault.
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
