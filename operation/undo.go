package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
)

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

// plannedUndo is an undo of a step that the function has come past.
type plannedUndo struct {
	seq    int    // of the step
	of     string // its name
	index  int    // among the undos of the step
	policy *Policy
	// prepare reads the value of the step, and returns one of the two functions.
	prepare func() (func(pgx.Tx) error, func(ctx context.Context, key string) error, error)
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

// unwind undoes what is done, and ends the operation: by Cancel, as its record says, or, if that
// says nothing, by err of the function.
func (op *Op) unwind(err error) longcall.Ending {
	w := op.work
	op.stopped = nil
	op.close(nil)
	op.markRolledBack()
	if op.awaitChildren() != nil || op.correctUndos() != nil {
		return op.endStopped(op.stopped)
	}
	end, rejected, failed := op.settleEnd(err)
	if failed != nil {
		return op.endStopped(op.stopped)
	}
	last := commit{free: true, state: store.OperationFailed}
	var complete *store.Complete
	if rejected != nil {
		var err error
		if complete, err = w.call.Completion(&w.key, *rejected, store.Failed); err != nil {
			return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: err}, err)
		}
	}
	op.unwinds = true
	for i := len(op.undos) - 1; i >= 0; i-- {
		if err := op.runUndo(&op.undos[i]); err != nil {
			return op.endStopped(op.stopped)
		}
	}
	if rejected != nil {
		return op.complete(complete, *rejected, last)
	}
	return op.endUndone(end, last)
}

// endUndone makes the last commit of an operation that ends in an error: it frees the key.
func (op *Op) endUndone(end error, last commit) longcall.Ending {
	w := op.work
	last.state, w.cause = store.OperationUndone, end
	told, err := w.tellParent(&childEnd{State: last.state, Canceled: w.journal.canceled})
	if err != nil {
		op.close(nil)
		return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: err}, err)
	}
	last.with, last.rouses = append(told, &store.HoldKey{Key: &w.key, Room: store.Free}), len(told) > 0
	if err := op.commit(last); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.Leave(w.operation, false)
	return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: w.cause})
}

// settleEnd returns in what the operation ends: an error, or the answer of a rejection. What the
// function has decided is recorded with the next commit, and counts from then on, whatever the
// function returns in later runs. Cancel comes before it.
func (op *Op) settleEnd(err error) (end error, rejected *longcall.Response, stopped error) {
	w := op.work
	if w.journal.canceled {
		return ErrCanceled, nil, nil
	}
	stored := []byte(nil)
	if w.journal.end != nil {
		stored = w.journal.end.Value
	} else {
		stored, _ = op.failure(err)
		op.remember(&step{seq: op.nextSeq(), kind: store.EndStep, name: "error"}, store.StepFailed, stored)
	}
	seen, failed := restore(w.definition.known, stored)
	if failed != nil {
		return nil, nil, op.park("", ReasonValueUnreadable, "the recorded error in which it ends %v", failed)
	}
	if resp, isRejected := longcall.RejectionOf(seen); isRejected {
		return nil, &resp, nil
	}
	return &endedError{cause: ofFunction(seen)}, nil, nil
}

// recordDecision records that the operation is undone, for a run that parks at an undo:
// Status.Undos lists what is still to run. What UndoTx have written is rolled back.
func (op *Op) recordDecision() {
	stopped := op.stopped
	op.pending = slices.DeleteFunc(op.pending, func(r store.RecordStep) bool { return r.Step.Kind == store.UndoStep && isInTx(&r.Step) })
	if len(op.pending) > 0 {
		op.putDown(commit{always: true, at: op.work.at})
	}
	op.stopped = stopped
}

// nextSeq returns the first position behind all steps, recorded or about to be.
func (op *Op) nextSeq() int {
	last := op.work.journal.last
	for i := range op.pending {
		last = max(last, op.pending[i].Step.Seq)
	}
	return last + 1
}

// markRolledBack marks the Tx that were rolled back with the transaction, which was not committed.
// They are recorded all the same: the steps behind them keep their positions.
func (op *Op) markRolledBack() {
	for i := range op.pending {
		if s := &op.pending[i].Step; s.Kind == store.TxStep && s.Outcome == store.StepDone {
			s.Outcome = store.StepRolledBack
		}
	}
}

// correctUndos has the rows of done steps say how many undos they have by the running code, where
// decide allows another number than the recorded one. Status and PreviewCancel read it there. An
// undo that has a row counts, whether or not the code still has it; one that is in doubt and that
// the code no longer has parks the operation.
func (op *Op) correctUndos() error {
	j, count, planned := &op.work.journal, map[string]int{}, map[string]bool{}
	for i := range op.undos {
		u := &op.undos[i]
		count[u.of] = max(count[u.of], u.index+1)
		planned[undoName(u.of, u.index)] = true
	}
	for name, s := range j.undos {
		of, index := splitUndoName(name)
		count[of] = max(count[of], index+1)
		if s.Outcome == store.StepBegun && !planned[name] && op.work.returned[s.Seq].Name != name {
			return op.park(of, ReasonCallInDoubt, "the undo of step %q may have happened, and the code no longer has it: ask the other side, and Resolve the step", of)
		}
	}
	for seq := 1; seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome == store.StepDone && s.Undos != count[s.Name] && op.outcomeOf(seq) == store.StepDone {
			op.remember(&step{seq: seq, kind: s.Kind, name: s.Name, undos: count[s.Name]}, store.StepDone, s.Value)
		}
	}
	return nil
}

// awaitChildren waits for children that the function does not ask for any more, and that are
// canceled.
func (op *Op) awaitChildren() error {
	for seq := 1; seq <= len(op.work.journal.steps); seq++ {
		s := op.work.journal.steps[seq]
		if s.Kind != store.ChildStep || s.Outcome != store.StepWaiting || op.outcomeOf(seq) != store.StepWaiting {
			continue
		}
		op.awaits = true
		if _, err := op.child(&step{seq: seq, kind: s.Kind, name: s.Name, do: wait, recorded: &s}, nil); op.stopped != nil {
			return err
		}
	}
	return nil
}

// runUndo runs an undo, unless its step is not done, or the undo is.
func (op *Op) runUndo(u *plannedUndo) error {
	name := undoName(u.of, u.index)
	recorded, begun := op.work.journal.undos[name]
	if op.outcomeOf(u.seq) != store.StepDone || begun && recorded.Outcome == store.StepDone {
		return nil
	}
	op.current = u.of
	tx, call, err := u.prepare()
	if err != nil {
		return op.park(u.of, ReasonValueUnreadable, "the recorded value of step %q does not decode for its undo: the code has changed", u.of)
	}
	s := &step{seq: op.nextSeq(), kind: store.UndoStep, name: name, do: run}
	if begun {
		s.seq, s.do, s.recorded = recorded.Seq, settle, &recorded
	}
	if u.policy == nil {
		if begun {
			return op.park(u.of, ReasonCodeChanged, "the code has changed: the undo of step %q was begun as an UndoCall, and is an UndoTx", u.of)
		}
		if err := op.inTx(s, func(t pgx.Tx) ([]byte, error) { return nil, tx(t) }); err != nil && op.stopped == nil {
			return op.parkFor(err, 0, u.of, ReasonUndoFailed, "the undo of step %q has failed", u.of)
		}
		return op.halted()
	}
	s.policy = u.policy.stored()
	if known := op.work.returnedBy(s); known != nil {
		op.remember(s, known.Outcome, known.Value)
		return nil
	}
	o := &outside{
		step: s, policy: *u.policy, what: fmt.Sprintf("the undo of step %q", u.of), of: u.of, key: derivedKey(op.work.operation, store.UndoStep, name),
		call:   func(ctx context.Context, key string) ([]byte, error) { return nil, call(ctx, key) },
		encode: func(any) ([]byte, error) { return nil, nil },
	}
	if _, err := op.callOut(o); err != nil && op.stopped == nil {
		return op.parkFor(err, o.tries, u.of, ReasonUndoFailed, "the undo of step %q has failed", u.of)
	}
	return op.halted()
}
