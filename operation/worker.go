package operation

import (
	"cmp"
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
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/txn"
)

// WorkerConfig configures a Worker. The zero value is valid.
type WorkerConfig struct {
	// Concurrency is how many operations the Worker works on at a time. The default is 16.
	Concurrency int

	// Poll is the pause between two looks for due operations, with some jitter. The default is a
	// second. The minimum is half a second, because a look reads pg_locks, which locks the lock table
	// of the server for a moment. Behind a pooler, each Worker looks about once per Poll. Otherwise
	// two processes, the guards, look on behalf of all: see docs/operations-reference.md. In case the
	// guards fail, each Worker then also looks by itself: with twice as many processes half as often.
	Poll time.Duration

	// Drain limits how long operations continue after the context of Run has ended. After that time
	// the contexts of the operations end as well. The default is 10 seconds.
	Drain time.Duration

	// Options are options of idem.Do for all operations of the Worker. Pass the idem.WithSealer of the
	// callers. WithMaxResponse, WithRetries and WithObserver have an effect as well.
	Options []idem.Option

	// Logger gets errors and panics of operations, and errors of the database. The default is
	// slog.Default().
	Logger *slog.Logger
}

func (c *WorkerConfig) set() error {
	switch {
	case c.Concurrency < 0, c.Drain < 0:
		return errors.New("operation: WorkerConfig: Concurrency and Drain must not be negative")
	case c.Poll != 0 && c.Poll < time.Second/2:
		return fmt.Errorf("operation: WorkerConfig: Poll is %v, and must be at least half a second", c.Poll)
	}
	c.Concurrency, c.Poll = cmp.Or(c.Concurrency, 16), cmp.Or(c.Poll, time.Second)
	c.Drain, c.Logger = cmp.Or(c.Drain, 10*time.Second), cmp.Or(c.Logger, slog.Default())
	return nil
}

// Worker resumes operations that no process works on: operations that Start or Child has begun, and
// operations that are due after a pause or a signal. It also resumes operations whose process has
// died or whose caller has left. Run a Worker in every process.
type Worker struct {
	pool        *pgxpool.Pool
	config      WorkerConfig
	definitions map[string]*definition
	err         error
}

// NewWorker returns a Worker for these definitions. The Worker does not touch operations of other
// definitions.
func NewWorker(pool *pgxpool.Pool, config WorkerConfig, definitions ...Runnable) *Worker {
	w := &Worker{pool: pool, config: config, definitions: map[string]*definition{}}
	w.err = w.config.set()
	if pool == nil {
		w.err = errNoPool
	}
	w.err = errors.Join(w.err, idem.CheckOptions(config.Options...))
	for _, r := range definitions {
		d := r.defined()
		w.err = errors.Join(w.err, d.err)
		if w.definitions[d.name] != nil {
			w.err = errors.Join(w.err, fmt.Errorf("operation: two definitions are called %q", d.name))
		}
		w.definitions[d.name] = d
	}
	return w
}

// Run claims and resumes operations until ctx ends. After that, operations in progress may continue
// for Drain. Then Run ends their contexts, and they are released when their functions return. Run
// returns nil when all its goroutines have ended. It continues during an outage of the database. It
// returns an error at once if the Worker is not valid.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r := &workerRun{Worker: w, working: working, slots: make(chan struct{}, w.config.Concurrency), freed: make(chan struct{}, 1), busy: map[string]int{}}
	r.engine = engineOf(w.pool)
	r.engine.Prepared = txn.WithOwn(db.WorkerStatements)
	r.watcher = presence.NewWatcher(func(name string) bool { return w.definitions[name] != nil })
	var guarding sync.WaitGroup
	guarding.Go(func() { r.watcher.Run(ctx, r.engine, w.config.Poll) })
	defer guarding.Wait()
	for ctx.Err() == nil {
		full := r.look(ctx)
		r.watcher.SetFull(full)
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

// workerRun is the state of one Run.
type workerRun struct {
	*Worker
	engine     *txn.Engine
	working    context.Context
	slots      chan struct{}
	freed      chan struct{}
	watcher    *presence.Watcher
	nextLook   time.Duration // the pause before the next look for due operations
	lacksTurn  bool          // when the last look ended, a suspect had the turn: see takeTurn
	operations sync.WaitGroup

	mu   sync.Mutex
	busy map[string]int // how many operations are in progress, by the names of their definitions
}

// gathering is how long a Worker waits after an operation has ended, before it looks for others. In
// that time more operations may end, and a look for ten operations costs little more than a look
// for one.
const gathering = 2 * time.Millisecond

// pause waits until the next look for due operations. It ends early if one of the guards, which
// look on behalf of all processes, has found a due operation. The last look may have left due
// operations, because the Worker had no room or a suspect had the turn (see takeTurn). Then the
// pause also ends when an operation of this Worker ends, or has ended since.
func (r *workerRun) pause(ctx context.Context, full bool) {
	timer := time.NewTimer(r.nextLook)
	defer timer.Stop()
	var freed chan struct{}
	if full || r.lacksTurn {
		freed = r.freed
	}
	select {
	case <-timer.C:
	case <-freed:
		_ = txn.Sleep(ctx, gathering)
	case <-r.watcher.Due():
	case <-ctx.Done():
	}
}

// look claims as many due operations as the Worker has room for, and starts a goroutine for each.
// It reports whether there may be more due operations. If no suspect has the turn (see takeTurn),
// look may also claim one suspect, an operation whose processes have died. After that the next look
// follows at once: other suspects may have filled the LIMIT of the statement and hidden due
// operations. While the turn is taken, the statement skips suspects and finds those operations.
func (r *workerRun) look(ctx context.Context) (full bool) {
	room := cap(r.slots) - len(r.slots)
	r.nextLook, r.lacksTurn = r.config.Poll-rand.N(r.config.Poll/4), false
	if room == 0 {
		return true
	}
	i, err := presence.Adopt(ctx, r.engine)
	if err != nil {
		r.warn(ctx, "operation: the worker cannot claim operations: it has no presence", err)
		return false
	}
	defer i.Release()
	t := takeTurn()
	taken, full, err := r.take(ctx, i, room, t != nil)
	if err != nil {
		i.Leak()
		r.warn(ctx, "operation: the worker cannot look for due operations", err)
	} else if pause, guarded := i.IdlePause(r.config.Poll); guarded {
		r.nextLook = pause
	}
	for n := range taken {
		c := &claimed{Taken: taken[n]}
		var held *turn
		if t != nil && c.Deaths >= db.Suspected {
			held, t, r.nextLook = t, nil, 0
		}
		r.slots <- struct{}{}
		r.operations.Add(1)
		r.count(c.Name, 1)
		i.Retain()
		go r.work(i, c, held)
	}
	r.lacksTurn = t == nil
	t.end()
	return full
}

// lookLimit is the timeout of a look, and of the reading of an operation's steps after its claim.
// If the server does not answer, no process works on the claimed operations until the timeout. Then
// the instance releases them.
const lookLimit = 15 * time.Second

// errClaimedSince is the error for an operation that another process has claimed since this process
// claimed it.
var errClaimedSince = errors.New("operation: another process has claimed the operation")

// load reads the steps of a claimed operation. An operation that was only started has no steps. If
// the steps cannot be read, load releases the operation.
//
// The claim is committed before load reads the steps. In between, this process may have been taken
// for dead, and another process may have claimed the operation and begun a call. This process would
// read that the call is in doubt, and would repeat it. No commit precedes the repetition, so no
// fence would refuse it. Therefore load reads the epoch after the steps. If it is the epoch of the
// claim, no later claim had changed the steps when they were read.
func (r *workerRun) load(w *work, c *claimed) error {
	if c.Kind == db.Started {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.working, lookLimit)
	defer cancel()
	steps, show := db.LoadSteps{OperationID: c.OperationID}, db.ShowOperation{OperationID: c.OperationID}
	err := r.engine.Requery(ctx, &steps, &show)
	for pause := txn.RetryPause; txn.Transient(err) && txn.Sleep(ctx, pause.Next()) == nil; {
		err = r.engine.Requery(ctx, &steps, &show)
	}
	switch {
	case err == nil && show.Epoch == c.Epoch:
		c.rows = steps.Rows
		return nil
	case err == nil:
		w.leave(bridge.Ending{})
		return errClaimedSince
	}
	ctx, cancel = context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if r.engine.Query(ctx, &db.ReleaseOperation{OperationID: c.OperationID, Epoch: c.Epoch, Tries: c.Tries}) != nil {
		w.leaveUnreleased(bridge.Ending{})
		return err
	}
	w.leave(bridge.Ending{})
	return err
}

// take claims as many operations as there is room for, and reserves them in this process. If turn
// is true, one of them may be a suspect: see takeTurn.
func (r *workerRun) take(ctx context.Context, i *presence.Instance, room int, turn bool) (taken []db.Taken, full bool, err error) {
	looks, full := r.looks(room)
	if len(looks) == 0 {
		return nil, full, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	err = i.WithClaimLock(ctx, func() error {
		requests := make([]txn.Request, len(looks))
		for n, look := range looks {
			look.Owner, look.Running = i.Number, i
			requests[n] = look
		}
		if turn {
			looks[rand.N(len(looks))].Alone = true
		}
		if err := r.engine.Requery(ctx, requests...); err != nil {
			return err
		}
		for _, look := range looks {
			full = full || len(look.Rows) == look.Room
			taken = append(taken, look.Rows...)
		}
		for n := range taken {
			i.Reserve(taken[n].OperationID)
		}
		return nil
	})
	return taken, full, err
}

// looks returns the statements of one look: one statement for each definition with WithConcurrency,
// and one for all other definitions. Together the statements claim at most room operations. full is
// true if a definition was left out.
func (r *workerRun) looks(room int) (looks []*db.TakeOperations, full bool) {
	var unlimited []string
	r.mu.Lock()
	for name, d := range r.definitions {
		switch left := d.concurrency - r.busy[name]; {
		case d.concurrency == 0:
			unlimited = append(unlimited, name)
		case left > 0:
			looks = append(looks, &db.TakeOperations{Names: []string{name}, Room: left})
		default:
			full = true
		}
	}
	r.mu.Unlock()
	if len(unlimited) > 0 {
		looks = append(looks, &db.TakeOperations{Names: unlimited, Room: room})
	}
	if room < len(looks) {
		rand.Shuffle(len(looks), func(i, j int) { looks[i], looks[j] = looks[j], looks[i] })
		looks, full = looks[:room], true
	}
	for n, look := range looks {
		look.Room = min(look.Room, room/(len(looks)-n))
		room -= look.Room
	}
	return looks, full
}

func (r *workerRun) count(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[name] += n
}

func (r *workerRun) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, what, "error", err)
	}
}

// work runs one claimed operation. It logs the error of a run unless the error has ended the
// operation, or the run has ended with the Worker. If the operation is a suspect, held is the turn
// (see takeTurn); otherwise it is nil.
func (r *workerRun) work(i *presence.Instance, t *claimed, held *turn) {
	defer func() {
		if p := recover(); p != nil {
			r.config.Logger.Error("operation: the function has panicked", "operation", t.OperationID, "name", t.Name,
				"panic", p, "stack", string(debug.Stack()))
		}
		<-r.slots
		r.count(t.Name, -1)
		select {
		case r.freed <- struct{}{}:
		default:
		}
		r.operations.Done()
	}()
	w := &work{definition: r.definitions[t.Name], instance: i, operation: t.OperationID, epoch: t.Epoch, logger: r.config.Logger}
	if held != nil {
		w.holdTurn(held)
	}
	switch err := r.load(w, t); {
	case err == errClaimedSince:
		return
	case err != nil:
		r.warn(r.working, "operation: the worker cannot read an operation that it has claimed, and releases it", err)
		return
	}
	end := w.runWith(r.working, r.pool, r.config.Options, t)
	if end.Err == nil || end.Err == w.endError || errors.Is(end.Err, idem.ErrInProgress) && r.working.Err() != nil {
		return
	}
	attrs := []any{"operation", t.OperationID, "name", t.Name}
	if parked, ok := end.Err.(*ParkedError); ok {
		attrs = append(attrs, "error", parked.Error(), "reason", string(parked.Reason))
		if parked.Cause != nil {
			attrs = append(attrs, "cause", w.textOf(parked.Cause))
		}
	} else {
		attrs = append(attrs, "error", w.textOf(end.Err))
	}
	r.config.Logger.Warn("operation: a run has not ended the operation", attrs...)
}

// Pending is an operation that no living process works on, and that is due or has got a signal.
type Pending struct {
	ID    string
	Name  string
	Epoch int // grows whenever a process claims the operation
}

// Due returns up to limit operations of the given names that a Worker would claim. The operation
// that has been due for the longest time comes first. Due leaves out the operations in except whose
// epoch has not changed: no process has claimed them since. Pass operations that wait for a Resume
// already, so that they do not fill limit. Due claims nothing: another process may claim an
// operation before a Resume does.
func Due(ctx context.Context, pool *pgxpool.Pool, names []string, limit int, except ...Pending) ([]Pending, error) {
	if pool == nil {
		return nil, errNoPool
	}
	due := db.DueOperations{Names: names, Room: limit}
	for _, p := range except {
		due.Except(p.ID, p.Epoch)
	}
	engine := engineOf(pool)
	if err := engine.Query(ctx, &due); err != nil {
		return nil, err
	}
	pending := make([]Pending, len(due.Rows))
	for i, d := range due.Rows {
		pending[i] = Pending{ID: d.OperationID, Name: d.Name, Epoch: d.Epoch}
	}
	return pending, nil
}

// Resume continues the operation with the given id after its recorded steps, if the operation is
// due and no process works on it. Resume does not begin an operation, and does not wait for another
// call. The most important option is idem.WithSealer.
//
// Resume returns nil if the operation has ended with an answer, by this call or before. It also
// returns nil if the operation had ended in a Final error before this call. Resume returns
// idem.ErrInProgress if another process works on the operation, or if the operation waits;
// ErrParked if a person must decide; and ErrUnknownOperation if no operation has the id. A Final
// error that this call returns, and ErrCanceled, have ended the operation: it is undone, and its
// key is free. After any other error the operation continues later.
func (d *Definition[In]) Resume(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) error {
	if d.err != nil {
		return d.err
	}
	if pool == nil {
		return errNoPool
	}
	if err := idem.CheckOptions(opts...); err != nil {
		return err
	}
	id, err := parsedID(id)
	if err != nil {
		return err
	}
	w := &work{definition: &d.definition, operation: id}
	t, end := w.claim(ctx, engineOf(pool))
	if t != nil {
		end = w.runWith(ctx, pool, opts, t)
	}
	switch {
	case end.Outcome == bridge.Recorded, end.Outcome == bridge.Finished, end.Outcome == bridge.Undone:
		return nil
	case end.Outcome == bridge.InProgress && end.Err == nil:
		return &idem.InProgressError{Key: "of operation " + id, RetryAfter: time.Second}
	}
	return end.Err
}
