package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Op is one run of the function of an operation, which takes its steps through it. It is of no use
// once the function has returned.
type Op struct {
	work   *work
	ctx    context.Context
	cancel context.CancelCauseFunc

	taking  sync.Mutex  // a step is being taken
	misused atomic.Bool // Changed was called out of turn, and has no error to return
	misuses atomic.Pointer[error]
	over    bool  // the function has returned
	stopped *stop // why no further step is taken

	tx      *txn.Tx // open, with a savepoint; nil if there is none
	used    bool    // something has run behind the savepoint
	pending []store.RecordStep
	signals []store.TakeSignal
	awaits  bool // the function has asked for a signal
	grouped bool // Calls have a Go, and no Wait yet

	seq         int    // of the last step that the function has asked for
	current     string // its name, or that of the undo that runs
	occurrences map[string]int
	undos       []plannedUndo // of the steps so far, in their order
	unwinds     bool          // the next commit says that the operation is undone
}

// ID returns the id of the operation. It is the same in every run, and that of the record of the
// key: carry it into events. A signal is sent to it.
func (op *Op) ID() string { return op.work.operation }

// Context returns the context of this run. It ends when the caller leaves, when the Worker is told
// to stop, and when this process may no longer work on the operation.
func (op *Op) Context() context.Context { return op.ctx }

// stop is why a run takes no more steps. It is the error of every step from there on, whatever the
// function makes of that.
type stop struct {
	why    why
	err    error
	reason Reason // of parked
	step   string // at which it is parked
	text   string // of parked
	cause  error  // the error of the program, or of another system, that has parked it
	tries  int    // the attempt that has returned cause; 0 if it is none of an attempt
	free   bool   // another run because of it is no retry
}

type why int

const (
	again     why = iota // the transaction is lost: run again from the record
	lost                 // another process has taken the operation up
	suspended            // it waits, and is for the first process that comes when it is due
	left                 // the caller has left
	parked               // a person decides
	unknown              // the first COMMIT was not acknowledged
	broken               // err says why
	unwound              // the function is run no further, and what is done is undone
)

func (s *stop) Error() string {
	switch {
	case s.why == parked:
		return fmt.Sprintf("%v: %s", ErrParked, s.text)
	case s.err != nil:
		return fmt.Sprintf("operation: no further step is taken: %v", s.err)
	}
	return "operation: no further step is taken in this run"
}

func (s *stop) Unwrap() error {
	if s.why == parked {
		return ErrParked
	}
	return s.err
}

// halt ends the run. The first reason counts.
func (op *Op) halt(w why, err error) error { return op.stop(&stop{why: w, err: err}) }

// haltFree ends the run, and begins another one that does not count as a retry.
func (op *Op) haltFree(err error) error { return op.stop(&stop{why: again, err: err, free: true}) }

func (op *Op) stop(s *stop) error {
	if op.stopped == nil {
		op.stopped = s
	}
	return op.stopped
}

// park parks the operation at a step.
func (op *Op) park(step string, reason Reason, format string, args ...any) error {
	return op.stop(&stop{why: parked, step: step, reason: reason, text: fmt.Sprintf(format, args...)})
}

// maxQuoted is how many characters of an error the reason of a parked operation quotes.
const maxQuoted = 200

// parkFor parks the operation because of an error that is not of this package, at the attempt of
// that number. The text of the reason is stored plain: it quotes the beginning of the error, and
// where a Sealer is set only its types.
func (op *Op) parkFor(cause error, attempt int, step string, reason Reason, format string, args ...any) error {
	text := fmt.Sprintf(format+": %.*s", append(args, maxQuoted, op.work.told(cause))...)
	return op.stop(&stop{why: parked, step: step, reason: reason, text: text, cause: cause, tries: attempt})
}

// interrupted ends the run because its context has ended.
func (op *Op) interrupted() error {
	if cause := context.Cause(op.ctx); errors.Is(cause, presence.ErrLost) {
		return op.halt(again, cause)
	}
	return op.halt(left, endOf(op.ctx))
}

// halted returns why no step is taken any more, nil if steps are.
func (op *Op) halted() error {
	if op.misused.Load() {
		err := ErrMisused
		if how := op.misuses.Load(); how != nil {
			err = *how
		}
		_ = op.halt(broken, err)
	}
	if op.stopped != nil {
		return op.stopped
	}
	return nil
}

// misuse ends the run: no further step is taken, and the run fails with this error, whatever the
// function returns.
func (op *Op) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrMisused}, args...)...)
	op.misuses.CompareAndSwap(nil, &err)
	op.misused.Store(true)
	return err
}

// step is a step that is being taken.
type step struct {
	seq      int
	kind     store.StepKind
	name     string // with its number, if the name is used again
	undos    int
	policy   string      // of a call
	do       action      // what follows for it
	recorded *store.Step // nil if there is no row
}

// enter begins a step, after which leave must follow if there is no error.
func (op *Op) enter(r request) (*step, error) {
	if !op.taking.TryLock() {
		return nil, fmt.Errorf("%w: step %q", ErrMisused, r.name)
	}
	s, v, err := op.ask(r)
	if err == nil {
		err = op.obey(v)
	}
	if err != nil {
		op.taking.Unlock()
		return nil, err
	}
	return s, nil
}

func (op *Op) leave() { op.taking.Unlock() }

// ask takes the next position for a step, and returns what follows for it.
func (op *Op) ask(r request) (*step, verdict, error) {
	if op.over {
		return nil, verdict{}, fmt.Errorf("%w: step %q", ErrMisused, r.name)
	}
	if err := op.halted(); err != nil {
		return nil, verdict{}, err
	}
	if err := cmp.Or(r.invalid, checkName(r.name)); err != nil {
		return nil, verdict{}, op.halt(broken, err)
	}
	if op.ctx.Err() != nil {
		return nil, verdict{}, op.interrupted()
	}
	op.seq++
	r.seq, r.name = op.seq, op.numbered(r.kind, r.name)
	op.current = r.name
	s := &step{seq: r.seq, kind: r.kind, name: r.name, undos: r.undos}
	if r.policy != nil {
		s.policy = r.policy.stored()
	}
	v := verdict{}
	if known := op.work.returnedBy(s); known != nil {
		op.remember(s, known.Outcome, known.Value)
		v = verdict{do: replay, step: known}
	} else {
		v = decide(&op.work.journal, r)
	}
	s.do, s.recorded = v.do, v.step
	return s, v, nil
}

// obey stops the run where the verdict says so.
func (op *Op) obey(v verdict) error {
	switch {
	case v.do == unwind:
		return op.halt(unwound, nil)
	case v.do == park:
		return op.park(v.at, v.reason, "%s", v.text)
	case op.work.journal.replays && v.do != replay: // how the function goes on depends on what is not recorded
		return op.halt(suspended, nil)
	}
	return nil
}

// numbered returns the name, with a number if it is used again. Steps that may have undos share
// their numbers, whatever their kinds: an undo has the name of its step.
func (op *Op) numbered(kind store.StepKind, name string) string {
	if op.occurrences == nil {
		op.occurrences = map[string]int{}
	}
	used := name
	if kind == store.SleepStep || kind == store.AwaitStep {
		used = string(kind) + "\n" + name
	}
	op.occurrences[used]++
	if n := op.occurrences[used]; n > 1 {
		return fmt.Sprintf("%s#%d", name, n)
	}
	return name
}

// inStep does what a step does once it is entered.
func inStep[T any](op *Op, name string, take func() (T, error)) (T, error) {
	defer op.leave()
	return whole(op, name, take)
}

// remember has a step recorded by the next commit.
func (op *Op) remember(s *step, outcome store.StepOutcome, value []byte) *store.RecordStep {
	r := store.RecordStep{
		OperationID: op.work.operation,
		Step:        store.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value, Undos: s.undos},
		First:       op.work.hasNoRow(s.seq),
	}
	if outcome == store.StepBegun || s.kind == store.UndoStep {
		r.Step.Policy = s.policy
	}
	for i := range op.pending {
		if op.pending[i].Step.Seq == s.seq {
			op.pending[i] = r
			return &op.pending[i]
		}
	}
	op.pending = append(op.pending, r)
	return &op.pending[len(op.pending)-1]
}

// outcomeOf returns the outcome of a step, recorded or about to be.
func (op *Op) outcomeOf(seq int) store.StepOutcome {
	for i := range op.pending {
		if op.pending[i].Step.Seq == seq {
			return op.pending[i].Step.Outcome
		}
	}
	s, _ := op.work.journal.row(seq)
	return s.Outcome
}

// replay returns the recorded outcome of a step.
func (op *Op) replay(s *step) (value []byte, err error) {
	if s.recorded.Outcome != store.StepFailed {
		return s.recorded.Value, nil
	}
	failed, err := restore(op.work.definition.known, s.recorded.Value)
	if err != nil {
		return nil, op.park(s.name, ReasonValueUnreadable, "the recorded error of step %q %v", s.name, err)
	}
	return nil, failed
}

// failure returns the error of a step as it is stored, and as the function sees it: in this run as
// in every later one.
func (op *Op) failure(err error) (stored []byte, seen error) {
	known := op.work.definition.known
	stored = known.Encode(err)
	if seen, failed := restore(known, stored); failed == nil {
		return stored, seen
	}
	return stored, err
}

// result decodes the value of a step. A value that a person has given may be given again.
func result[T any](op *Op, s *step, stored []byte, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	value, err := decode[T](op.work.definition.codec, stored)
	switch {
	case err != nil && op.work.journal.given[s.seq]:
		return none, op.park(s.name, ReasonValueUnreadable, "the value that a person has given for %q does not decode into %T: Resolve it again with one that does", s.name, none)
	case err != nil:
		return none, op.park(s.name, ReasonValueUnreadable, "the recorded value of step %q does not decode into %T: the code has changed", s.name, none)
	}
	return value, nil
}

// Tx takes a step in Postgres: what do writes through its tx is committed together with the value
// of the step. Neighboring Tx share a transaction, which is committed when something needs it to
// be: a Call, a Sleep, an Await, a Child, the end of the operation, or Checkpoint. What is true of
// the fn of idem.Do is true of do. One that ends the transaction itself parks the operation, if
// anything is recorded of it.
//
// If do returns an error its writes are rolled back, those of the steps before it stay, and the
// function gets the error. So it does if a constraint fails that is deferred to the COMMIT: the
// function is run again, and the error is that of the last Tx behind which the constraint does not
// hold. In the first transaction of an operation such an error rolls back everything, as with
// idem.Do. After a transient error, such as a deadlock or a lost connection, the function is run
// again and does not see it.
//
// Each undo undoes the step: see [Undo].
func Tx[T any](op *Op, name string, do func(tx pgx.Tx) (T, error), undo ...Undo[T]) (T, error) {
	var none T
	s, err := op.enter(request{kind: store.TxStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
	if err != nil {
		return none, err
	}
	return inStep(op, s.name, func() (value T, err error) {
		var stored []byte
		if s.do == replay {
			stored, err = op.replay(s)
			value, err = result[T](op, s, stored, err)
		} else {
			err = op.inTx(s, func(tx pgx.Tx) ([]byte, error) {
				returned, err := do(tx)
				if err != nil {
					return nil, err
				}
				stored, value, err = encode(op.work.definition.codec, returned)
				return stored, err
			})
		}
		if err != nil {
			return none, err
		}
		return value, plan(op, s, undo, func() (T, error) { return decode[T](op.work.definition.codec, stored) })
	})
}

// Exec is Tx for a step without a value. A step that is recorded as a Tx with a value cannot go on
// as an Exec.
func Exec(op *Op, name string, do func(tx pgx.Tx) error, undo ...Undo[None]) error {
	_, err := Tx(op, name, func(tx pgx.Tx) (None, error) { return None{}, do(tx) }, undo...)
	return err
}

// inTx runs a step, or an undo, in the transaction.
func (op *Op) inTx(s *step, fn func(pgx.Tx) ([]byte, error)) error {
	if err := op.begin(); err != nil {
		return err
	}
	op.used = true
	var value []byte
	began := time.Now()
	_, err := op.tx.Run(op.work.operation, func(tx pgx.Tx) (bool, error) {
		var err error
		value, err = fn(tx)
		return false, err
	})
	if err == nil && op.work.checked[s.seq] {
		err = txn.Answered(op.tx.Ask(op.ctx, store.CheckConstraints{})) // by what the program has deferred, too
	}
	op.work.taken(op.ctx, s, began, err, false)
	if err != nil {
		return op.rollBackStep(s, err)
	}
	op.remember(s, store.StepDone, value)
	return nil
}

// rollBackStep rolls back what a step has written that returned err, if the transaction goes on
// without it.
func (op *Op) rollBackStep(s *step, err error) error {
	switch {
	case errors.Is(err, idem.ErrTxEnded):
		return op.txEnded(err, s)
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.TooSlow(err):
		return op.halt(broken, err)
	case txn.Transient(err), txn.Stale(err):
		return op.halt(again, err)
	}
	if failed := op.tx.Ask(op.ctx, store.UndoStepWrites{}); failed != nil {
		switch {
		case lacksSavepoint(failed):
			return op.txEnded(txn.Ended("its savepoint is gone", err), s)
		case errors.Is(err, idem.ErrTxAborted):
			return op.halt(again, err)
		}
		return op.failed(failed)
	}
	op.used = false
	if s.kind == store.UndoStep { // it parks the operation
		return err
	}
	stored, seen := op.failure(err)
	op.remember(s, store.StepFailed, stored)
	return seen
}

// txEnded ends a run in which a fn has ended the transaction: that of s, or one that is not known.
// What the Tx since the last commit have written may be committed without their rows, and another
// run would write it again. So the operation is parked. Before anything of it is recorded, the
// record of its key shows the same, as behind idem.Do.
func (op *Op) txEnded(err error, s *step) error {
	if op.work.epoch == 0 {
		return op.halt(broken, err)
	}
	var steps []string
	for i := range op.pending {
		if p := &op.pending[i].Step; isInTx(p) {
			steps = append(steps, fmt.Sprintf("%s %q", p.Kind, p.Name))
		}
	}
	if s != nil {
		steps = append(steps, fmt.Sprintf("%s %q", s.kind, s.name))
	}
	written := "its steps"
	if len(steps) > 0 {
		written = strings.Join(steps, ", ")
	}
	return op.parkFor(err, 0, op.current, ReasonTxEnded, "the fn of a step has ended the transaction, and what %.500s wrote may be committed, and is not recorded: "+
		"look at it, and Retry with a fn that does not, or Cancel", written)
}

// isInTx reports whether a step that is to be recorded has written in the transaction.
func isInTx(s *store.Step) bool {
	return s.Outcome == store.StepDone && (s.Kind == store.TxStep || s.Kind == store.UndoStep && s.Policy == "")
}

// lacksSavepoint reports whether a statement about the savepoint was refused because the
// transaction is another one, or has ended.
func lacksSavepoint(err error) bool { return txn.HasCode(err, "3B001", "25P01") }

// Sleep pauses the operation for d, which begins with a commit of all that came earlier and is
// counted by the database's clock. A pause of more than some seconds holds nothing: neither a
// connection, nor the caller, nor a worker. A pause that ends while no process is there ends when a
// process is.
func Sleep(op *Op, name string, d time.Duration) error {
	s, err := op.enter(request{kind: store.SleepStep, name: name})
	if err != nil {
		return err
	}
	defer op.leave()
	switch s.do {
	case run:
		op.waits(s, d)
		return op.waitFor(s, d, false)
	case wait:
		if remaining := op.work.clock.until(s.recorded.DueAt); remaining > 0 {
			return op.waitFor(s, remaining, true)
		}
	}
	return nil
}

// waits has a pause recorded by the next commit.
func (op *Op) waits(s *step, d time.Duration) {
	op.remember(s, store.StepWaiting, nil).Pause = max(d, 0)
}

// waitFor waits in memory if the pause is short, and otherwise leaves the operation to a process
// that is there when it is due.
func (op *Op) waitFor(s *step, d time.Duration, recorded bool) error {
	if d > longPause {
		if err := op.commit(commit{free: true, at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: d}}); err != nil {
			return err
		}
		return op.halt(suspended, nil)
	}
	if !recorded || op.tx != nil || len(op.pending) > 0 {
		if err := op.commit(commit{at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq}}); err != nil {
			return err
		}
	}
	if txn.Sleep(op.ctx, max(d, 0)) != nil {
		return op.interrupted()
	}
	return nil
}

// Changed tells which code an operation follows, where the code has changed while operations were
// in progress. It is false for an operation that has come past this point without it, and true,
// from then on and in every run, for any other:
//
//	if op.Changed("fraud check") {
//		… = operation.Call(op, "fraud check", …)
//	}
//
// A call that was begun and has no outcome is recorded: Changed is false in front of it.
//
// Changed cannot return an error. With an invalid name, by two goroutines at once or inside of a
// step, it ends the run: no further step is taken, and whatever the function returns, the error is
// ErrInvalidName or ErrMisused.
func (op *Op) Changed(name string) bool {
	if !op.taking.TryLock() {
		op.misused.Store(true)
		return false
	}
	defer op.taking.Unlock()
	j, next := &op.work.journal, op.seq+1
	recorded, ok := j.steps[next]
	err := checkName(name)
	switch {
	case op.over:
		op.misused.Store(true)
		return false
	case op.halted() != nil:
		return false
	case err != nil:
		_ = op.halt(broken, err)
		return false
	case ok && recorded.Kind == store.ChangedStep && recorded.Name == name:
		op.seq = next
		return true
	case ok, j.unwinding():
		return false
	}
	op.seq = next
	if !j.replays {
		op.remember(&step{seq: next, kind: store.ChangedStep, name: name}, store.StepDone, nil)
	}
	return true
}

// taken reports a step, or an attempt at one, to the observer. A name that is used again is
// reported without its number.
func (w *work) taken(ctx context.Context, s *step, began time.Time, err error, unknown bool) {
	name, _, _ := strings.Cut(s.name, "#")
	w.call.StepTaken(ctx, longcall.Step{
		Operation: w.operation, Name: w.definition.name, Kind: string(s.kind), Step: name,
		Err: err, Unknown: unknown, Duration: time.Since(began),
	})
}

// escape is a panic of the function of a call, or the end of its goroutine.
type escape struct {
	panicked any
	stack    []byte
}

// again does in the goroutine of the operation's function what the function of the call has done in
// its own.
func (e *escape) again(op *Op, name string) {
	if e == nil {
		return
	}
	_ = op.halt(broken, escaped(name))
	if e.panicked == nil {
		runtime.Goexit()
	}
	if err, ok := e.panicked.(error); ok {
		panic(fmt.Errorf("operation: step %q has panicked: %w\n\n%s", name, err, e.stack))
	}
	panic(fmt.Sprintf("operation: step %q has panicked: %v\n\n%s", name, e.panicked, e.stack))
}

// escaped is why a run takes no further step behind a step that has panicked.
func escaped(name string) error {
	return fmt.Errorf("operation: step %q has panicked, and the function has recovered: another run finds out what the step has done", name)
}

// whole does what a step does. If that panics, or ends the goroutine, the run is over: a function
// that recovers can make nothing of a call in doubt, or of a Tx that is half done.
func whole[T any](op *Op, name string, do func() (T, error)) (T, error) {
	returned := false
	defer func() {
		if !returned {
			_ = op.halt(broken, escaped(name))
		}
	}()
	value, err := do()
	returned = true
	return value, err
}
