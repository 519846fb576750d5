package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/hold"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// WorkerConfig changes a Worker. The zero value works.
type WorkerConfig struct {
	// Concurrency is how many operations the Worker works on at a time. The default is 16.
	Concurrency int

	// Poll is how often it looks for operations that are due. The default is a second, with some jitter; more often than
	// twice a second is refused, because every look takes locks that the whole server shares.
	Poll time.Duration

	// Drain is for how long operations may go on after the end of the context of Run, before theirs end, too. The default is
	// 10 seconds.
	Drain time.Duration

	// Options are those of idem.Do that matter to work that no caller waits for: idem.WithSealer above all, where the callers
	// have one, and idem.WithMaxResponse.
	Options []idem.Option

	// Logger is told what no caller hears of: errors of operations, panics, and the database out of reach. The default is
	// slog.Default().
	Logger *slog.Logger
}

func (c *WorkerConfig) set() error {
	switch {
	case c.Concurrency < 0, c.Drain < 0:
		return errors.New("operation: WorkerConfig: Concurrency and Drain are not negative")
	case c.Poll != 0 && c.Poll < time.Second/2:
		return fmt.Errorf("operation: WorkerConfig: Poll is at least half a second, not %v", c.Poll)
	}
	if c.Concurrency == 0 {
		c.Concurrency = 16
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Drain == 0 {
		c.Drain = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

// Worker finishes what others have left: operations that were started by Start, whose process has died, whose caller has left,
// or that are due after a pause or by a signal. Run one in every process. It works on nothing that somebody else works on.
type Worker struct {
	pool        *pgxpool.Pool
	config      WorkerConfig
	definitions map[string]*definition
	names       []string
	err         error
}

// NewWorker returns a Worker for these definitions. Operations of others are left alone.
func NewWorker(pool *pgxpool.Pool, config WorkerConfig, definitions ...Runnable) *Worker {
	w := &Worker{pool: pool, config: config, definitions: map[string]*definition{}}
	w.err = w.config.set()
	if pool == nil {
		w.err = errors.New("operation: pool is nil")
	}
	w.err = errors.Join(w.err, idem.CheckOptions(config.Options...))
	for _, r := range definitions {
		d := r.defined()
		if d.err != nil {
			w.err = errors.Join(w.err, d.err)
		}
		if w.definitions[d.name] != nil {
			w.err = errors.Join(w.err, fmt.Errorf("operation: two definitions are called %q", d.name))
		}
		w.definitions[d.name] = d
		w.names = append(w.names, d.name)
	}
	return w
}

// Run works until ctx ends, then lets go of its operations, and returns nil once nothing of it is left. It goes on through
// outages of the database. Its error says that the Worker cannot work as it was made.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r := &running{Worker: w, working: working, slots: make(chan struct{}, w.config.Concurrency), freed: make(chan struct{}, 1)}
	r.engine = &txn.Engine{Pool: w.pool, Limits: txn.DefaultLimits}
	for full := false; ctx.Err() == nil; {
		full = r.look(ctx)
		r.pause(ctx, full)
	}
	drained := make(chan struct{})
	go func() { r.operations.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(w.config.Drain):
		stop()
		<-drained
	}
	return nil
}

// running is a Worker that runs.
type running struct {
	*Worker
	engine     *txn.Engine
	working    context.Context
	slots      chan struct{}
	freed      chan struct{}
	operations sync.WaitGroup
}

// pause pauses between two looks: for as long as Poll says, or, if there was more than there was room for, until there is room.
func (r *running) pause(ctx context.Context, full bool) {
	pause := r.config.Poll - rand.N(r.config.Poll/4)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var freed chan struct{}
	if full {
		freed = r.freed
	}
	select {
	case <-timer.C:
	case <-freed:
	case <-ctx.Done():
	}
}

// look takes up what is due, and reports whether there may be more.
func (r *running) look(ctx context.Context) (full bool) {
	room := cap(r.slots) - len(r.slots)
	if room == 0 {
		return true
	}
	i, err := adopt(ctx, r.engine)
	if err != nil {
		r.complain(ctx, "operation: a worker cannot show that it is there", err)
		return false
	}
	defer i.release()
	take := store.TakeOperations{Owner: i.number, Names: r.names, Room: room}
	err = i.alone(ctx, func() error {
		take.Running = i.list()
		if err := r.engine.Query(ctx, &take); err != nil {
			return err
		}
		for n := range take.Taken {
			i.reserve(take.Taken[n].OperationID)
		}
		return nil
	})
	if err != nil {
		i.leak()
		r.complain(ctx, "operation: a worker cannot look for work", err)
		return false
	}
	for n := range take.Taken {
		r.slots <- struct{}{}
		r.operations.Add(1)
		i.presence.use(1)
		go r.goOn(i, &take.Taken[n])
	}
	return len(take.Taken) == room
}

func (r *running) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, what, "error", err)
	}
}

// goOn works on one operation.
func (r *running) goOn(i *instance, taken *store.Taken) {
	defer func() {
		if p := recover(); p != nil {
			r.config.Logger.Error("operation: its function has panicked", "operation", taken.OperationID, "name", taken.Name,
				"panic", p, "stack", string(debug.Stack()))
		}
		<-r.slots
		select {
		case r.freed <- struct{}{}:
		default:
		}
		r.operations.Done()
	}()
	end := r.execute(i, taken)
	switch {
	case end.Err == nil, errors.Is(end.Err, idem.ErrInProgress) && r.working.Err() != nil:
	default:
		attrs := []any{"operation", taken.OperationID, "name", taken.Name, "error", end.Err}
		if parked, ok := end.Err.(*ParkedError); ok && parked.Cause != nil {
			attrs = append(attrs, "cause", parked.Cause)
		}
		r.config.Logger.Warn("operation: it did not end", attrs...)
	}
}

// execute goes on with an operation that was taken up.
func (r *running) execute(i *instance, taken *store.Taken) hold.Ending {
	w := &work{definition: r.definitions[taken.Name], instance: i, operation: taken.OperationID, epoch: taken.Epoch}
	call, err := hold.Settings(r.pool, taken.Scope, taken.Key, taken.Hash, taken.TTL, r.config.Options)
	if err != nil {
		i.leave(taken.OperationID, true)
		i.release()
		return hold.Ending{Err: err}
	}
	w.call = call
	steps := store.LoadSteps{OperationID: taken.OperationID}
	if err := r.engine.Query(r.working, &steps); err != nil {
		i.leave(taken.OperationID, true)
		i.release()
		return hold.Ending{Err: err}
	}
	return w.goOn(r.working, taken, &steps)
}
