package operation

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
)

// UndoTx registers what takes back, in Postgres, the steps since the last Undo or UndoTx; if none of these is a Tx, a Call or a Child, the
// steps that follow, up to the next Undo or UndoTx. Where one stands right behind another, both take back the same steps: those behind which
// the first one stands, and only if there are none, those that follow. It is run if the operation ends in
// idem.Reject or in an error that is Final: in reverse order, as a step like any other, once. Steps that were never committed
// are rolled back, and what would undo them is not run, nor what would undo steps that have all failed: the Undo behind a Call that was
// declined is not run, whatever follows, nor the UndoTx behind a Tx that has failed. A second Undo right behind that Undo is for what follows, and so
// is a second UndoTx. An Undo behind nothing but failed Tx may be run for a Call
// that follows, and an UndoTx behind failed calls for a Tx. What an undo takes back is
// committed as a whole or not at all: where some of it is committed, as before a Call, UndoTx and Undo commit the rest. If fn returns an error that does not pass, the operation is parked.
func UndoTx(op *Op, name string, fn func(tx pgx.Tx) error) error {
	return op.registerUndo(store.UndoTxStep, name, undo{tx: fn})
}

// Undo registers what takes back, outside of Postgres, the steps since the last Undo or UndoTx: a refund for a charge. What
// is said of UndoTx and of Call is true of it, too. An error that is Final parks the operation.
func Undo(op *Op, name string, safety Safety, fn func(ctx context.Context, key string) error, opts ...CallOption) error {
	return op.registerUndo(store.UndoStep, name, undo{safety: safety, options: callOptionsOf(opts), call: fn})
}

func (op *Op) registerUndo(kind store.StepKind, name string, u undo) error {
	s, err := op.enter(kind, name)
	if err != nil {
		return err
	}
	defer op.leave()
	if kind == store.UndoStep && !u.safety.isValid() {
		return op.halt(broken, errors.New("operation: Undo needs a safety: Keyed with a window, Asked, or Once"))
	}
	if err := u.options.check(&u.safety); err != nil {
		return op.halt(broken, err)
	}
	u.step, u.covers = *s, 1
	if n := len(op.undos); n > 0 {
		u.covers = op.undos[n-1].step.seq + 1
		if u.covers == s.seq { // nothing has come between: both take back the same
			u.covers = op.undos[n-1].covers
		}
	}
	op.undos = append(op.undos, u)
	if s.found != nil {
		return nil
	}
	op.remember(s, store.StepRegistered, nil)
	if op.isMixed(u.covers, s.seq) {
		return op.commit(commit{})
	}
	return nil
}

// undo takes back what was done, in reverse order, and ends the operation.
func (op *Op) undo(resp longcall.Response, rejected bool, cause error) longcall.Ending {
	w := op.work
	op.stopped = nil
	if op.isMixedAhead() {
		if err := op.commit(commit{}); err != nil {
			return op.endStopped(op.stopped)
		}
	}
	op.close(nil)
	last := commit{free: true, state: store.OperationFailed}
	var complete *store.Complete
	if rejected {
		var err error
		if complete, err = w.call.Completion(&w.key, resp, store.Failed); err != nil {
			return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: err})
		}
	}
	op.dropRolledBack()
	op.undoing = true
	for i := len(op.undos) - 1; i >= 0; i-- {
		if err := op.runUndo(&op.undos[i]); err != nil {
			return op.endStopped(op.stopped)
		}
	}
	if rejected {
		return op.complete(complete, resp, last)
	}
	last.state, w.cause = store.OperationUndone, op.endsIn(cause)
	told, err := w.tells(&childEnd{State: last.state, Cancelled: w.cancelled})
	if err != nil {
		op.close(nil)
		return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: err})
	}
	last.with, last.rouses = append(told, &store.HoldKey{Key: &w.key, Room: store.Free}), len(told) > 0
	if err := op.commit(last); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.leave(w.operation, false)
	return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: w.cause})
}

// dropRolledBack marks the steps that were rolled back with the transaction, which has not been committed. They are recorded
// all the same, or the function would not come as far again, and so would not register its undos.
func (op *Op) dropRolledBack() {
	for i := range op.pending {
		s := &op.pending[i].Step
		if s.Kind == store.TxStep && s.Outcome == store.StepDone {
			s.Outcome = store.StepRolledBack
		}
	}
	for i := range op.undos {
		u := &op.undos[i].step
		if op.isToDo(u) && !op.isNeeded(&op.undos[i]) {
			op.remember(u, store.StepNotNeeded, nil)
		}
	}
}

// isToDo reports whether an undo is not done yet, has something to take back, and is not left as it is: a person may have taken back by hand what it takes back.
func (op *Op) isToDo(u *step) bool {
	outcome := op.known(u.seq).Outcome
	return outcome != store.StepUndone && outcome != store.StepNotNeeded && !op.work.isLeft(u.seq)
}

// runUndo runs one undo, unless it is not to be done.
func (op *Op) runUndo(u *undo) error {
	op.current = u.step.name
	if !op.isToDo(&u.step) {
		return nil
	}
	if u.tx == nil {
		return op.undoOutside(u)
	}
	err := op.inTx(&u.step, func(tx pgx.Tx) ([]byte, error) { return nil, u.tx(tx) }, store.StepUndone)
	if err != nil && op.stopped == nil {
		return op.parkFor(err, "undo %q has failed", u.step.name)
	}
	return err
}

// undoOutside makes a call that takes something back.
func (op *Op) undoOutside(u *undo) error {
	s := u.step
	_, err := op.callOut(&outside{
		step: &s, safety: u.safety, options: u.options, key: derivedKey(op.work.operation, s.kind, s.name),
		call:   func(ctx context.Context, key string) ([]byte, error) { return nil, u.call(ctx, key) },
		encode: func(any) ([]byte, error) { return nil, nil },
	})
	if err != nil && op.stopped == nil {
		return op.parkFor(err, "undo %q has failed", u.step.name)
	}
	return err
}
