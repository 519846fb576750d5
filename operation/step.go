package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

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
		return nil, verdict{}, op.halt(stopBroken, err)
	}
	if op.ctx.Err() != nil {
		return nil, verdict{}, op.interrupted()
	}
	op.seq++
	r.seq, r.name = op.seq, op.numbered(r.kind, r.name)
	op.current = r.name
	s := &step{seq: r.seq, kind: r.kind, name: r.name, undos: r.undos, policy: r.policy}
	v := verdict{}
	if known := op.work.unrecordedOutcome(s); known != nil {
		op.record(s, known.Outcome, known.Value)
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
		return op.halt(stopUnwound, nil)
	case v.do == park:
		return op.park(v.at, v.reason, "%s", v.text)
	case op.work.journal.replays && v.do != replay: // how the function goes on depends on what is not recorded
		return op.halt(stopSuspended, nil)
	}
	return nil
}

// numbered returns the name, with a number if it is used again. Steps that may have undos share
// their numbers, whatever their kinds: an undo has the name of its step.
func (op *Op) numbered(kind db.StepKind, name string) string {
	if op.occurrences == nil {
		op.occurrences = map[string]int{}
	}
	used := name
	if kind == db.SleepStep || kind == db.AwaitStep {
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

// whole does what a step does. If that panics, or ends the goroutine, the run is over: a function
// that recovers can make nothing of a call in doubt, or of a Tx that is half done.
func whole[T any](op *Op, name string, do func() (T, error)) (T, error) {
	returned := false
	defer func() {
		if !returned {
			_ = op.halt(stopBroken, escaped(name))
		}
	}()
	value, err := do()
	returned = true
	return value, err
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
	_ = op.halt(stopBroken, escaped(name))
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

// unrecordedOutcome returns the outcome of a call that was made in an earlier run of this process
// and is not recorded yet, or nil.
func (w *work) unrecordedOutcome(s *step) *db.Step {
	if known, ok := w.outcomes[s.seq]; ok && known.Kind == s.kind && known.Name == s.name {
		return &known
	}
	return nil
}

// remember has a step recorded by the next commit.
func (op *Op) record(s *step, outcome db.StepOutcome, value []byte) *db.RecordStep {
	r := db.RecordStep{
		OperationID: op.work.operation,
		Step:        db.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value, Undos: s.undos},
		First:       op.work.hasNoRow(s.seq),
	}
	if outcome == db.StepBegun || s.kind == db.UndoStep {
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

// hasNoRow reports whether it is known that a step has no row in idem.steps.
func (w *work) hasNoRow(seq int) bool {
	_, recorded := w.journal.row(seq)
	return !recorded || seq == w.rowless
}

// outcomeOf returns the outcome of a step, recorded or about to be.
func (op *Op) outcomeOf(seq int) db.StepOutcome {
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
	if s.recorded.Outcome != db.StepFailed {
		return s.recorded.Value, nil
	}
	failed, err := restore(op.work.definition.knownErrors, s.recorded.Value)
	if err != nil {
		return nil, op.park(s.name, ReasonValueUnreadable, "the recorded error of step %q %v", s.name, err)
	}
	return nil, failed
}

// failure returns the error of a step as it is stored, and as the function sees it: in this run as
// in every later one.
func (op *Op) failure(err error) (stored []byte, seen error) {
	known := op.work.definition.knownErrors
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

// None is the value of a step that has none.
type None = struct{}

// Undo undoes a step whose value is a T. It is made by [UndoTx] or [UndoCall], and is an argument
// of the step that it undoes:
//
//   - It runs if and only if its step is recorded as done and the operation ends in idem.Reject, in
//     a Final error, or by Cancel. A step that has failed, that was rolled back or that never ran
//     is not undone.
//   - Undos run in the reverse order of their steps, and several of one step in the reverse of
//     their order. Each is recorded, and runs once.
//   - Before the first undo runs, each call in doubt is settled as its Policy says, or the
//     operation parks.
//   - A step that is done and has no undo stays: Status.Kept lists it.
//   - An undo that fails for good parks the operation. Status.Undos lists the undos that are still
//     to run.
//   - The code of an undo is that of the running release, and it gets the recorded value of its
//     step.
type Undo[T any] struct {
	policy *Policy // of an UndoCall
	tx     func(tx pgx.Tx, done T) error
	call   func(ctx context.Context, key string, done T) error
}

// UndoTx returns an undo in Postgres. Neighboring UndoTx share a transaction. If fn returns an
// error that is not transient, the operation parks with ReasonUndoFailed.
func UndoTx[T any](fn func(tx pgx.Tx, done T) error) Undo[T] { return Undo[T]{tx: fn} }

// UndoCall returns an undo outside of Postgres: a refund for a charge. It is made as a Call is,
// under a key of its own. If fn returns a Final error, the operation parks with ReasonUndoFailed.
func UndoCall[T any](policy Policy, fn func(ctx context.Context, key string, done T) error) Undo[T] {
	return Undo[T]{policy: &policy, call: fn}
}

// checkUndos returns why undos cannot be used.
func checkUndos[T any](undos []Undo[T]) error {
	for i := range undos {
		switch u := &undos[i]; {
		case u.tx == nil && u.call == nil:
			return errors.New("operation: an undo has no function: make it by UndoTx or UndoCall")
		case u.policy != nil && u.policy.check() != nil:
			return fmt.Errorf("%w (of an undo)", u.policy.check())
		}
	}
	return nil
}

// plan keeps the undos of a step that is done.
func plan[T any](op *Op, s *step, undos []Undo[T], value func() (T, error)) error {
	for i := range undos {
		u := &undos[i]
		op.undos = append(op.undos, plannedUndo{seq: s.seq, of: s.name, index: i, policy: u.policy,
			prepare: func() (func(pgx.Tx) error, func(context.Context, string) error, error) {
				done, err := value()
				if u.tx != nil {
					return func(tx pgx.Tx) error { return u.tx(tx, done) }, nil, err
				}
				return nil, func(ctx context.Context, key string) error { return u.call(ctx, key, done) }, err
			}})
	}
	return nil
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
	s, err := op.enter(request{kind: db.TxStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
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
		err = txn.ServerError(op.tx.Ask(op.ctx, db.CheckConstraints{})) // by what the program has deferred, too
	}
	op.work.taken(op.ctx, s, began, err, false)
	if err != nil {
		return op.rollBackStep(s, err)
	}
	op.record(s, db.StepDone, value)
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
		return op.halt(stopBroken, err)
	case txn.Transient(err), txn.Stale(err):
		return op.halt(stopAgain, err)
	}
	if failed := op.tx.Ask(op.ctx, db.UndoStepWrites{}); failed != nil {
		switch {
		case lacksSavepoint(failed):
			return op.txEnded(txn.Ended("its savepoint is gone", err), s)
		case errors.Is(err, idem.ErrTxAborted):
			return op.halt(stopAgain, err)
		}
		return op.failed(failed)
	}
	op.used = false
	if s.kind == db.UndoStep { // it parks the operation
		return err
	}
	stored, seen := op.failure(err)
	op.record(s, db.StepFailed, stored)
	return seen
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
		_ = op.halt(stopBroken, err)
		return false
	case ok && recorded.Kind == db.ChangedStep && recorded.Name == name:
		op.seq = next
		return true
	case ok, j.unwinding():
		return false
	}
	op.seq = next
	if !j.replays {
		op.record(&step{seq: next, kind: db.ChangedStep, name: name}, db.StepDone, nil)
	}
	return true
}

// taken reports a step, or an attempt at one, to the observer. A name that is used again is
// reported without its number.
func (w *work) taken(ctx context.Context, s *step, began time.Time, err error, unknown bool) {
	name, _, _ := strings.Cut(s.name, "#")
	w.call.StepTaken(ctx, bridge.Step{
		Operation: w.operation, Name: w.definition.name, Kind: string(s.kind), Step: name,
		Err: err, Unknown: unknown, Duration: time.Since(began),
	})
}

// everywhere are the errors that every definition knows. A definition appends to a copy.
var everywhere = slices.Clip(append(slices.Clone(storederror.Common),
	storederror.Name("idem.ErrMismatch", idem.ErrMismatch), storederror.Name("idem.ErrInProgress", idem.ErrInProgress),
	storederror.Name("idem.ErrTxEnded", idem.ErrTxEnded), storederror.Name("idem.ErrTxAborted", idem.ErrTxAborted),
	storederror.Name("operation.ErrTimeout", ErrTimeout), storederror.Name("operation.ErrNoBeat", ErrNoBeat),
	storederror.Name("operation.ErrParked", ErrParked), storederror.Name("operation.ErrCanceled", ErrCanceled),
	storederror.Name("operation.ErrNotHappened", ErrNotHappened), storederror.Name("operation.ErrUndone", ErrUndone),
	storederror.Name("operation.ErrUnknownOperation", ErrUnknownOperation), storederror.Name("operation.ErrInvalidName", ErrInvalidName),
	storederror.Name("operation.ErrValueTooLarge", ErrValueTooLarge), storederror.Name("operation.ErrMisused", ErrMisused),
	storederror.Name("", &ChildError{})))

// restore returns an error that was stored.
func restore(known storederror.Set, stored []byte) (error, error) {
	return known.Decode(stored, Final, func(r bridge.Response) error { return idem.Reject(idem.Response(r)) })
}
