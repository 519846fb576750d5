package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// enter begins a step. If it returns no error, op.taking is locked, and the caller must unlock it
// when the step has ended.
func (op *Op) enter(r request) (*step, error) {
	if !op.taking.TryLock() {
		return nil, fmt.Errorf("%w: step %q", ErrMisused, r.name)
	}
	s, err := op.ask(r)
	if err == nil {
		err = op.follow(s.decision)
	}
	if err != nil {
		op.taking.Unlock()
		return nil, err
	}
	return s, nil
}

// ask gives a step the next position, and decides what to do about the step. An earlier run in this
// process may have made a call and failed to record its outcome. ask then adds the outcome to the
// next commit, and treats it as recorded.
func (op *Op) ask(r request) (*step, error) {
	if op.over {
		return nil, fmt.Errorf("%w: step %q", ErrMisused, r.name)
	}
	if err := op.stopError(); err != nil {
		return nil, err
	}
	if err := cmp.Or(r.invalid, checkName(r.name)); err != nil {
		return nil, op.halt(stopFailed, err)
	}
	if op.ctx.Err() != nil {
		return nil, op.interrupted()
	}
	op.seq++
	r.seq, r.name = op.seq, op.numbered(r.kind, r.name)
	op.current = r.name
	s := &step{request: r}
	if known := op.work.unrecordedOutcome(s); known != nil {
		op.record(s, known.Outcome, known.Value)
		s.decision = decision{do: replay, recorded: known}
	} else {
		s.decision = decide(&op.work.journal, r)
	}
	return s, nil
}

// follow stops the run if the decision says so. Replay also stops at a step without a recorded
// outcome, because the outcome determines how the function continues.
func (op *Op) follow(d decision) error {
	switch {
	case d.do == unwind:
		return op.halt(stopUnwound, nil)
	case d.do == park:
		return op.stop(d.stop)
	case op.work.journal.replays && d.do != replay:
		return op.halt(stopSuspended, nil)
	}
	return nil
}

// numbered returns the name of a step. If the function has used the name before, numbered adds
// "#2", "#3" and so on. The row of an undo has the name of its step, so the kinds of steps that may
// have undos are counted together.
func (op *Op) numbered(kind db.StepKind, name string) string {
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

// takeStep runs the function do for a step that enter has begun, and ends the step.
func takeStep[T any](op *Op, name string, do func() (T, error)) (T, error) {
	defer op.taking.Unlock()
	value, err := haltOnPanic(op, name, do)
	op.stepEnded()
	return value, err
}

// stepEnded sets settled to the last step. If the run was stopped, the step may have no outcome.
func (op *Op) stepEnded() {
	if op.stopped == nil {
		op.settled = op.seq
	}
}

// haltOnPanic runs the function do. If do panics or ends its goroutine, the run takes no further
// step, even if the function recovers. The function cannot know what an interrupted call or Tx has
// done.
func haltOnPanic[T any](op *Op, name string, do func() (T, error)) (T, error) {
	returned := false
	defer func() {
		if !returned {
			_ = op.halt(stopFailed, recoveredError(name))
		}
	}()
	value, err := do()
	returned = true
	return value, err
}

// recoveredError is the error of all further steps after a step has panicked and the function has
// recovered.
func recoveredError(name string) error {
	return fmt.Errorf("operation: step %q has panicked, and the function has recovered: another run finds out what the step has done", name)
}

// callPanic is a panic in the goroutine of a parallel call, or the end of that goroutine.
type callPanic struct {
	value any // nil if the goroutine has ended without a panic
	stack []byte
}

// rethrow repeats the panic in the goroutine of the operation's function, or ends that goroutine if
// there is no panic value. On nil it does nothing.
func (p *callPanic) rethrow(op *Op, name string) {
	if p == nil {
		return
	}
	_ = op.halt(stopFailed, recoveredError(name))
	if p.value == nil {
		runtime.Goexit()
	}
	if err, ok := p.value.(error); ok {
		panic(fmt.Errorf("operation: step %q has panicked: %w\n\n%s", name, err, p.stack))
	}
	panic(fmt.Sprintf("operation: step %q has panicked: %v\n\n%s", name, p.value, p.stack))
}

// unrecordedOutcome returns the outcome of the call s if an earlier run in this process has made
// the call and could not record the outcome. It returns nil if there is no such outcome, or if
// another process has recorded one.
func (w *work) unrecordedOutcome(s *step) *db.Step {
	if w.journal.rows[s.seq].Outcome != db.StepBegun {
		return nil
	}
	if known, ok := w.unrecorded[s.seq]; ok && known.Kind == s.kind && known.Name == s.name {
		return &known
	}
	return nil
}

// record adds the outcome of a step to the next commit, or replaces the pending row at the position
// of the step. If the step surely has no row in idem.steps yet, the commit uses an INSERT, which
// costs less than an upsert.
func (op *Op) record(s *step, outcome db.StepOutcome, value []byte) *db.RecordStep {
	_, recorded := op.work.journal.rows[s.seq]
	r := db.RecordStep{
		OperationID: op.work.operation,
		Step:        db.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value, Undos: s.undos},
		First:       !recorded || s.seq == op.work.rowless,
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

// outcomeOf returns the outcome of a step as it is after the next commit.
func (op *Op) outcomeOf(seq int) db.StepOutcome {
	for i := range op.pending {
		if op.pending[i].Step.Seq == seq {
			return op.pending[i].Step.Outcome
		}
	}
	return op.work.journal.rows[seq].Outcome
}

// replay returns the recorded outcome of a step.
func (op *Op) replay(s *step) (value []byte, err error) {
	if s.recorded.Outcome == db.StepNotSent {
		return nil, errNotMade
	}
	if s.recorded.Outcome != db.StepFailed {
		return s.recorded.Value, nil
	}
	failed, err := restore(op.work.definition.knownErrors, s.recorded.Value)
	if err != nil {
		return nil, op.park(s.name, ReasonValueUnreadable, "the recorded error of step %q %v", s.name, err)
	}
	return nil, failed
}

// failure returns the error of a step in two forms: as it is stored, and as the function sees it.
// The function gets the restored form even in the first run, so that every run branches alike.
func (op *Op) failure(err error) (stored []byte, seen error) {
	known := op.work.definition.knownErrors
	stored = known.Encode(err)
	if seen, failed := restore(known, stored); failed == nil {
		return stored, seen
	}
	return stored, err
}

// result decodes the value of a step. If it does not decode, the operation parks.
func result[T any](op *Op, s *step, stored []byte, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	value, err := decode[T](op.work.definition.codec, stored)
	switch {
	case err != nil && op.work.journal.resolved[s.seq]:
		return none, op.park(s.name, ReasonValueUnreadable, "the value that a person has given for %q does not decode into %T: Resolve it again with one that does", s.name, none)
	case err != nil:
		return none, op.park(s.name, ReasonValueUnreadable, "the recorded value of step %q does not decode into %T: the code has changed", s.name, none)
	}
	return value, nil
}

// None is the type of the value of a step that has no value.
type None = struct{}

// Undo reverses a step whose value is a T. [UndoTx] and [UndoCall] return an Undo, which is an
// argument of the step:
//
//   - An undo runs if and only if its step is recorded as done and the operation ends in
//     idem.Reject, in a Final error, or by Cancel. It does not run if the step has failed, was
//     rolled back or never ran.
//   - Undos run in the reverse order of their steps. Several undos of one step also run in reverse
//     order. Each undo is recorded, and runs once.
//   - Before the first undo runs, each call in doubt is settled as its Policy says, or the
//     operation parks.
//   - A done step without an undo keeps its effect: Status.Kept lists the step.
//   - If an undo fails for good, the operation parks. Status.Undos lists the undos that are still
//     to run.
//   - An undo runs with the code of the current release, and gets the recorded value of its step.
type Undo[T any] struct {
	policy *Policy // the policy of an UndoCall; nil for an UndoTx
	tx     func(tx pgx.Tx, done T) error
	call   func(ctx context.Context, key string, done T) error
}

// UndoTx returns an undo in Postgres. Consecutive UndoTx share a transaction. If fn returns an
// error that is not transient, the operation parks with ReasonUndoFailed.
func UndoTx[T any](fn func(tx pgx.Tx, done T) error) Undo[T] { return Undo[T]{tx: fn} }

// UndoCall returns an undo outside of Postgres, such as a refund for a charge. The undo is made
// like a Call, under a key of its own. If fn returns a Final error, the operation parks with
// ReasonUndoFailed.
func UndoCall[T any](policy Policy, fn func(ctx context.Context, key string, done T) error) Undo[T] {
	return Undo[T]{policy: &policy, call: fn}
}

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

// planUndos keeps the undos of a done step, in case the operation is undone. The function value
// decodes the value of the step for each undo, because the function may have changed the value that
// it got.
func planUndos[T any](op *Op, s *step, undos []Undo[T], value func() (T, error)) {
	for i := range undos {
		u := &undos[i]
		op.undos = append(op.undos, plannedUndo{seq: s.seq, stepName: s.name, index: i, policy: u.policy,
			prepare: func() (func(pgx.Tx) error, func(context.Context, string) error, error) {
				done, err := value()
				if u.tx != nil {
					return func(tx pgx.Tx) error { return u.tx(tx, done) }, nil, err
				}
				return nil, func(ctx context.Context, key string) error { return u.call(ctx, key, done) }, err
			}})
	}
}

// Tx takes a step in Postgres: what the function do writes through tx is committed together with
// the value of the step. Consecutive Tx steps share a transaction. The transaction is committed
// before a Call, a Sleep, an Await or a Child, with the answer of the operation, or by Checkpoint.
// If the operation ends in a rejection or an error before that, the transaction is rolled back. The
// function do must follow the rules for the fn of idem.Do. If do commits or rolls back the
// transaction itself, the operation parks. If nothing of the operation is committed yet, the call
// fails instead.
//
// If do returns an error, its writes are rolled back, the writes of earlier steps stay, and Tx
// returns the error. A deferred constraint may fail at COMMIT. The function then runs again, and
// the last Tx after which the constraint does not hold returns the error. In the first transaction
// of an operation, the error of a deferred constraint rolls back everything, as with idem.Do. After
// a transient error, such as a deadlock or a lost connection, the function runs again and does not
// see the error.
//
// Each undo reverses the step if the operation is undone: see [Undo].
func Tx[T any](op *Op, name string, do func(tx pgx.Tx) (T, error), undo ...Undo[T]) (T, error) {
	var none T
	s, err := op.enter(request{kind: db.TxStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
	if err != nil {
		return none, err
	}
	return takeStep(op, s.name, func() (value T, err error) {
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
		planUndos(op, s, undo, func() (T, error) { return decode[T](op.work.definition.codec, stored) })
		return value, nil
	})
}

// Exec is Tx for a step without a value. A step that is recorded as a Tx with a value cannot
// continue as an Exec.
func Exec(op *Op, name string, do func(tx pgx.Tx) error, undo ...Undo[None]) error {
	_, err := Tx(op, name, func(tx pgx.Tx) (None, error) { return None{}, do(tx) }, undo...)
	return err
}

// inTx runs a step or an undo in the transaction of the run. If attribute has put the step into
// work.checkAfter, inTx also checks the deferred constraints, so that the step gets their error.
func (op *Op) inTx(s *step, fn func(pgx.Tx) ([]byte, error)) error {
	if err := op.ensureTx(); err != nil {
		return err
	}
	op.dirty = true
	var value []byte
	began := time.Now()
	_, err := op.tx.Run(op.work.operation, func(tx pgx.Tx) (bool, error) {
		var err error
		value, err = fn(tx)
		return false, err
	})
	if err == nil && op.work.checkAfter[s.seq] {
		err = txn.ServerError(op.tx.Ask(op.ctx, db.CheckConstraints{}))
	}
	op.work.observeStep(op.ctx, s, began, err, false)
	if err != nil {
		return op.rollBackStep(s, err)
	}
	op.record(s, db.StepDone, value)
	return nil
}

// rollBackStep rolls back to the savepoint before a step that has returned err, and records err as
// the outcome of the step. If the whole transaction is lost, the run stops instead: the transaction
// may have ended, or the server may have refused it with a serialization failure.
func (op *Op) rollBackStep(s *step, err error) error {
	switch {
	case errors.Is(err, idem.ErrTxEnded):
		return op.txEnded(err, s)
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.TooSlow(err):
		return op.halt(stopFailed, err)
	case txn.Transient(err), txn.Stale(err):
		return op.halt(stopRerun, err)
	}
	if failed := op.tx.Ask(op.ctx, db.UndoStepWrites{}); failed != nil {
		switch {
		case lacksSavepoint(failed):
			return op.txEnded(txn.Ended("its savepoint is gone", err), s)
		case errors.Is(err, idem.ErrTxAborted):
			return op.halt(stopRerun, err)
		}
		return op.failed(failed)
	}
	op.dirty = false
	if s.kind == db.UndoStep { // an undo that fails is not recorded: the caller parks the operation
		return err
	}
	stored, seen := op.failure(err)
	op.record(s, db.StepFailed, stored)
	return seen
}

// Changed reports whether an operation follows new code, if its code has changed while the
// operation was in progress. Changed returns false if the operation passed this point before the
// change. Otherwise it returns true, and also returns true in every later run:
//
//	if op.Changed("fraud check") {
//		… = operation.Call(op, "fraud check", …)
//	}
//
// If the old code has begun the call that comes next, the operation has passed this point, and
// Changed returns false. This is so even if the call has no outcome yet.
//
// Changed cannot return an error. If the name is invalid, or if Changed is called from two
// goroutines at once or inside of a step, it stops the run. No further step is taken. Whatever the
// function returns, the error of the call is then ErrInvalidName or ErrMisused.
func (op *Op) Changed(name string) bool {
	if !op.taking.TryLock() {
		_ = op.misuse("Changed(%.200q) while a step is taken", name)
		return false
	}
	defer op.taking.Unlock()
	if op.over {
		_ = op.misuse("Changed(%.200q) after the function has returned", name)
		return false
	}
	if op.stopError() != nil {
		return false
	}
	if err := checkName(name); err != nil {
		_ = op.halt(stopFailed, err)
		return false
	}
	j, next := &op.work.journal, op.seq+1
	recorded, ok := j.rows[next]
	switch {
	case ok && recorded.Kind == db.ChangedStep && recorded.Name == name:
		op.seq = next
		op.stepEnded()
		return true
	case ok, j.unwinding():
		return false
	}
	op.seq = next
	if !j.replays {
		op.record(&step{request: request{seq: next, kind: db.ChangedStep, name: name}}, db.StepDone, nil)
	}
	op.stepEnded()
	return true
}

// observeStep reports a step, or an attempt at a step, to the observer. It leaves out the suffix of
// a repeated name, such as "#2".
func (w *work) observeStep(ctx context.Context, s *step, began time.Time, err error, unknown bool) {
	name, _, _ := strings.Cut(s.name, "#")
	w.execution.StepTaken(ctx, bridge.Step{
		Operation: w.operation, Name: w.definition.name, Kind: string(s.kind), Step: name,
		Err: err, Unknown: unknown, Duration: time.Since(began),
	})
}
