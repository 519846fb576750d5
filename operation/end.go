package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// conclude decides how a run ends after the function of the operation has returned err. If a step
// has stopped the run, conclude returns the stop and no decision. There are two exceptions:
//
//   - After stopUnwound, conclude decides as after a Final error. If a value or an input does not
//     decode, it does the same, provided that the operation was canceled WithoutCode, or canceled
//     before a step was recorded.
//   - After stopFailed in a canceled operation, conclude decides as after an ordinary error of the
//     function. If the decision is to run again, conclude also returns the stop.
func (op *Op) conclude(err error) (d decision, how exit, s *stop) {
	how = exitOf(err)
	if op.callsOpen && how != exitFailed && op.stopped == nil {
		_ = op.misuse("the function returned before Wait for its Go calls")
	}
	_ = op.stopError() // a misuse stops the run
	j := &op.work.journal
	switch s := op.stopped; {
	case s == nil:
	case s.kind == stopUnwound, s.reason == ReasonValueUnreadable && j.canceled && (j.withoutCode || j.recordedAfter(0) == nil):
		how = exitFinal
	case s.kind == stopFailed && j.canceled:
		how = exitFailed
	default:
		return d, how, s
	}
	d = decide(j, request{seq: op.settled, exit: how})
	if d.do == retry {
		return d, how, op.stopped
	}
	return d, how, nil
}

// exitOf returns how a function that returned err has ended.
func exitOf(err error) exit {
	_, rejected := bridge.RejectionOf(err)
	switch {
	case err == nil:
		return exitAnswered
	case rejected || IsFinal(err):
		return exitFinal
	}
	return exitFailed
}

// end ends the run as conclude decides, and returns the ending of the call. If nothing is committed
// yet, package idem completes the call as it completes idem.Do, in the transaction that claimed the
// key.
func (op *Op) end(resp idem.Response, err error) bridge.Ending {
	w := op.work
	d, how, s := op.conclude(err)
	if s != nil {
		return op.endStopped(s)
	}
	if w.epoch == 0 {
		return w.leave(bridge.Ending{Outcome: bridge.Uncommitted, Response: bridge.Response(resp), Err: runError(err)})
	}
	switch {
	case how == exitFailed && op.ctx.Err() != nil:
		op.rollBack(nil)
		return w.releaseCallerLeft(op.ctx)
	case d.do == unwind:
		return op.unwind(err)
	case d.do == finish:
		complete, err := w.execution.Completion(&w.key, bridge.Response(resp), db.Completed)
		if err != nil {
			return op.fail(err)
		}
		return op.complete(complete, bridge.Response(resp), db.OperationCompleted)
	case d.do == park:
		d.stop.cause = err
		if op.stopped != nil { // err is then the stop itself: use the error that caused the stop
			d.stop.cause = op.stopped.err
		}
		return op.endStopped(d.stop)
	}
	op.rollBack(nil)
	return w.release(backoff(w.journal.runs), failedWith(runError(err)), err)
}

// endStopped ends a run that s has stopped, and returns the ending of the call.
func (op *Op) endStopped(s *stop) bridge.Ending {
	w := op.work
	switch {
	case s.kind == stopUnknown:
		return w.leaveUnreleased(bridge.Ending{Outcome: bridge.Unknown, Err: s.err})
	case w.epoch == 0 && s.kind == stopRerun:
		return w.leave(bridge.Ending{Outcome: bridge.RolledBack, Err: s.err})
	case w.epoch == 0 && s.kind == stopParked:
		return w.leave(failedWith(s))
	case w.epoch == 0:
		return w.leave(failedWith(s.err))
	}
	switch s.kind {
	case stopLost:
		op.rollBack(nil)
		w.keepInMemory()
		return w.leave(bridge.Ending{Outcome: bridge.InProgress})
	case stopSuspended: // the commit of op.suspend has released the operation
		return w.leave(bridge.Ending{Outcome: bridge.InProgress})
	case stopParked:
		op.rollBack(nil)
		if op.undoing { // record the decision to undo, so that Status.Undos lists the undos still to run; uncommitted UndoTx are rolled back
			op.pending = slices.DeleteFunc(op.pending, func(r db.RecordStep) bool { return r.Step.Kind == db.UndoStep && isInTx(&r.Step) })
			if len(op.pending) > 0 {
				op.commitStopped(commit{always: true, at: w.at})
			}
		}
		w.recordOutcomes(w.at)
		return w.parkAs(op.ctx, s)
	case stopCallerLeft:
		op.rollBack(nil)
		return w.releaseCallerLeft(op.ctx)
	case stopRerun: // the caller of runOnce starts another run
		op.rollBack(s.err)
		return bridge.Ending{}
	}
	return op.fail(s.err)
}

// complete makes the last commit of an operation that ends with a response. It commits the steps
// since the last commit, the response and the new state.
func (op *Op) complete(complete *db.Complete, resp bridge.Response, state db.OperationState) bridge.Ending {
	w := op.work
	notify, err := w.notifyParent(&childEnd{State: state, Response: (*idem.Response)(&resp)})
	if err != nil {
		return op.fail(err)
	}
	with := append([]txn.Request{complete}, notify...)
	if err := op.commit(commit{release: true, state: state, with: with, wakes: len(notify) > 0}); err != nil {
		return op.endStopped(op.stopped)
	}
	return w.leave(bridge.Ending{Outcome: bridge.Recorded, Record: &db.Record{
		SameHash: true, ExecutionID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}

// release makes the operation due for any process after pause, and ends the work of this process on
// it. It also records outcomes of calls that are not recorded yet. err is the error of the run, or
// nil.
func (w *work) release(pause time.Duration, end bridge.Ending, err error) bridge.Ending {
	return w.releaseWith(pause, end, w.stepError("", w.journal.runs, err))
}

// releaseWith is like release, but takes the error of the run in its stored form.
func (w *work) releaseWith(pause time.Duration, end bridge.Ending, last *db.StepError) bridge.Ending {
	w.recordOutcomes(db.At{})
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if w.execution.Engine().Query(ctx, &db.ReleaseOperation{
		OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Pause: pause, Error: last, Canceled: w.journal.canceled,
	}) != nil {
		return w.leaveUnreleased(end)
	}
	return w.leave(end)
}

// fail ends a run that has failed with err. It rolls the transaction back and releases the
// operation.
func (op *Op) fail(err error) bridge.Ending {
	op.rollBack(err)
	return op.work.release(backoff(op.work.journal.runs), failedWith(err), err)
}

// releaseCallerLeft releases an operation whose caller's context has ended. The operation is due at
// once.
func (w *work) releaseCallerLeft(ctx context.Context) bridge.Ending {
	return w.release(0, failedWith(w.callerLeftError(ctx)), nil)
}

// callerLeftError returns the error for a caller whose context has ended while its operation
// continues.
func (w *work) callerLeftError(ctx context.Context) error {
	return fmt.Errorf("operation: the caller has left: %w: %w",
		&idem.InProgressError{Key: "of operation " + w.operation, RetryAfter: time.Second}, endOf(ctx))
}

// backoff returns the pause before the next run. runs is the number of runs without progress so
// far.
func backoff(runs int) time.Duration {
	return time.Second << min(runs, 6)
}

// parkAs records that the operation is parked, and why. If a Cancel has arrived during the run,
// parkAs releases the operation instead, and the next run follows the Cancel. If another process
// has claimed the operation, nothing is recorded.
func (w *work) parkAs(ctx context.Context, s *stop) bridge.Ending {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	j := &w.journal
	p := &db.ParkOperation{
		OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Reason: string(s.reason), ReasonStep: s.step, ReasonText: storederror.Storable(s.text),
		Canceled: &j.canceled, WithoutCalling: j.withoutCalling, WithoutCode: j.withoutCode,
	}
	if s.reason == ReasonTxEnded { // park even if a Cancel has arrived: nothing else records that writes may be committed
		p.Canceled = nil
	}
	if s.reason == ReasonFunctionFailed {
		p.Error = w.stepError("", w.journal.runs, s.cause)
	} else {
		p.Error = w.stepError(s.step, s.attempt, s.cause)
	}
	if err := w.execution.Engine().Query(ctx, p); err != nil {
		return w.leaveUnreleased(failedWith(err))
	}
	if p.Affected == 0 {
		return w.releaseWith(0, bridge.Ending{Outcome: bridge.InProgress}, p.Error)
	}
	return w.leave(bridge.Ending{Outcome: bridge.Failed, Err: &ParkedError{
		OperationID: w.operation, Step: s.step, Reason: s.reason, ReasonText: p.ReasonText, Cause: s.cause,
	}})
}

// leave removes the operation from the list of operations that this process works on, and releases
// the presence.Instance. Without one it does nothing. It returns end.
func (w *work) leave(end bridge.Ending) bridge.Ending {
	if w.instance == nil {
		return end
	}
	w.instance.Leave(w.operation)
	return w.releaseInstance(end)
}

// leaveUnreleased is leave for an operation that this process may still own according to the
// database. The instance releases such operations in the database later.
func (w *work) leaveUnreleased(end bridge.Ending) bridge.Ending {
	w.instance.LeaveUnreleased(w.operation)
	return w.releaseInstance(end)
}

// releaseInstance releases the presence.Instance, and the turn if the operation is a suspect: see
// takeTurn. It returns end.
func (w *work) releaseInstance(end bridge.Ending) bridge.Ending {
	w.instance.Release()
	w.turn.end()
	w.instance, w.turn = nil, nil
	return end
}

// unwind runs the undos of all done steps, the last step first, and ends the operation. A canceled
// operation ends in ErrCanceled. Any other operation ends in the recorded error, or in err if no
// error is recorded.
//
// unwind first rolls back uncommitted writes. Its first commit records the decision to undo the
// operation, together with the error in which the operation ends. Later runs take the error from
// the record, and only Cancel replaces it. If a rejection is too large to store, the run fails
// before the first undo.
func (op *Op) unwind(err error) bridge.Ending {
	w := op.work
	op.stopped = nil
	op.misused.Store(nil)
	op.rollBack(nil)
	for i := range op.pending { // rolled-back Tx steps keep their rows, so that later steps keep their positions
		if s := &op.pending[i].Step; s.Kind == db.TxStep && s.Outcome == db.StepDone {
			s.Outcome = db.StepRolledBack
		}
	}
	if op.awaitChildren() != nil || op.correctUndos() != nil {
		return op.endStopped(op.stopped)
	}
	end, rejected, failed := op.recordEnd(err)
	if failed != nil {
		return op.endStopped(op.stopped)
	}
	var complete *db.Complete
	if rejected != nil {
		var err error
		if complete, err = w.execution.Completion(&w.key, *rejected, db.Failed); err != nil {
			return op.fail(err)
		}
	}
	op.undoing = true
	if u := op.undoInProgress(); u != nil && op.runUndo(u) != nil {
		return op.endStopped(op.stopped)
	}
	for i := len(op.undos) - 1; i >= 0; i-- {
		if err := op.runUndo(&op.undos[i]); err != nil {
			return op.endStopped(op.stopped)
		}
	}
	if rejected != nil {
		return op.complete(complete, *rejected, db.OperationFailed)
	}
	return op.endUndone(end)
}

// undoInProgress returns the undo that has begun and is not done, or nil. unwind runs this undo
// first. After Cancel WithoutCode the running code could otherwise run another undo earlier. The
// row of the operation names only one undo that has begun. The other undo would overwrite this
// name, and the record would no longer say that the first undo is in doubt.
func (op *Op) undoInProgress() *plannedUndo {
	for i := range op.undos {
		u := &op.undos[i]
		if recorded, begun := op.work.journal.undos[undoName(u.stepName, u.index)]; begun && recorded.Outcome != db.StepDone {
			return u
		}
	}
	return nil
}

// endUndone makes the last commit of an operation that ends in an error. The commit frees the key.
func (op *Op) endUndone(end error) bridge.Ending {
	w := op.work
	w.endError = end
	notify, err := w.notifyParent(&childEnd{State: db.OperationUndone, Canceled: w.journal.canceled})
	if err != nil {
		return op.fail(err)
	}
	with := append(notify, &db.HoldKey{Key: &w.key, Room: db.Free})
	if err := op.commit(commit{release: true, state: db.OperationUndone, with: with, wakes: len(notify) > 0}); err != nil {
		return op.endStopped(op.stopped)
	}
	return w.leave(failedWith(end))
}

// recordEnd returns the error in which the operation ends, or the response of a rejection. If no
// error is recorded yet, the next commit records err. A canceled operation ends in ErrCanceled,
// even if another error is recorded. If the recorded error cannot be restored, the operation parks.
func (op *Op) recordEnd(err error) (end error, rejected *bridge.Response, stopped error) {
	w := op.work
	if w.journal.canceled {
		return ErrCanceled, nil, nil
	}
	var stored []byte
	if w.journal.end != nil {
		stored = w.journal.end.Value
	} else {
		stored, _ = op.failure(err)
		op.record(&step{request: request{seq: op.nextSeq(), kind: db.EndStep, name: "error"}}, db.StepFailed, stored)
	}
	seen, failed := restore(w.definition.knownErrors, stored)
	if failed != nil {
		return nil, nil, op.park("", ReasonValueUnreadable, "the recorded error of the operation %v", failed)
	}
	if resp, isRejected := bridge.RejectionOf(seen); isRejected {
		return nil, &resp, nil
	}
	return &endedError{cause: runError(seen)}, nil, nil
}

// nextSeq returns the first position after all rows, recorded or pending.
func (op *Op) nextSeq() int {
	last := op.work.journal.last
	for i := range op.pending {
		last = max(last, op.pending[i].Step.Seq)
	}
	return last + 1
}

// correctUndos updates the recorded number of undos of each done step, which Show and PreviewCancel
// read. It counts the undos in the running code, and the recorded undos that the code no longer
// has. An undo that is in doubt and that the code no longer has parks the operation, unless this
// process has the outcome of the undo in memory.
func (op *Op) correctUndos() error {
	j, count, planned := &op.work.journal, map[string]int{}, map[string]bool{}
	for i := range op.undos {
		u := &op.undos[i]
		count[u.stepName] = max(count[u.stepName], u.index+1)
		planned[undoName(u.stepName, u.index)] = true
	}
	for name, s := range j.undos {
		stepName, index := splitUndoName(name)
		count[stepName] = max(count[stepName], index+1)
		if s.Outcome == db.StepBegun && !planned[name] && op.work.unrecorded[s.Seq].Name != name {
			return op.park(stepName, ReasonCallInDoubt, "the undo of step %q may have happened, and this version of the code does not have it: ask the other side, and Resolve the step", stepName)
		}
	}
	for seq := 1; seq <= j.steps; seq++ {
		if s := j.rows[seq]; s.Outcome == db.StepDone && s.Undos != count[s.Name] && op.outcomeOf(seq) == db.StepDone {
			op.record(&step{request: request{seq: seq, kind: s.Kind, name: s.Name, undos: count[s.Name]}}, db.StepDone, s.Value)
		}
	}
	return nil
}

// awaitChildren stops the run if a child is still in progress. Such a child is canceled together
// with its parent. The end of the child makes the parent due again.
func (op *Op) awaitChildren() error {
	for seq := 1; seq <= op.work.journal.steps; seq++ {
		s := op.work.journal.rows[seq]
		if s.Kind != db.ChildStep || s.Outcome != db.StepWaiting || op.outcomeOf(seq) != db.StepWaiting {
			continue
		}
		op.usesSignals = true
		child := &step{request: request{seq: seq, kind: s.Kind, name: s.Name}, decision: decision{do: wait, recorded: &s}}
		if _, err := op.child(child, nil); op.stopped != nil {
			return err
		}
	}
	return nil
}

// runUndo runs the undo u. It does nothing if u is already done, or if the step that u reverses is
// not done. An UndoTx joins the transaction of the run; an UndoCall is made like a Call. If the
// undo fails, the operation parks.
func (op *Op) runUndo(u *plannedUndo) error {
	name := undoName(u.stepName, u.index)
	recorded, begun := op.work.journal.undos[name]
	if op.outcomeOf(u.seq) != db.StepDone || begun && recorded.Outcome == db.StepDone {
		return nil
	}
	op.current = u.stepName
	tx, call, err := u.prepare()
	if err != nil {
		return op.park(u.stepName, ReasonValueUnreadable, "the recorded value of step %q does not decode for its undo: the code has changed", u.stepName)
	}
	s := &step{request: request{seq: op.nextSeq(), kind: db.UndoStep, name: name}, decision: decision{do: run}}
	if begun {
		s.seq, s.decision = recorded.Seq, decision{do: settle, recorded: &recorded}
	}
	if u.policy == nil {
		if begun {
			return op.park(u.stepName, ReasonCodeChanged, "the code has changed: the undo of step %q was begun as an UndoCall, and is an UndoTx", u.stepName)
		}
		if err := op.inTx(s, func(t pgx.Tx) ([]byte, error) { return nil, tx(t) }); err != nil && op.stopped == nil {
			return op.parkFor(err, 0, u.stepName, ReasonUndoFailed, "the undo of step %q has failed", u.stepName)
		}
		return op.stopError()
	}
	s.policy = u.policy.stored()
	if known := op.work.unrecordedOutcome(s); known != nil {
		op.record(s, known.Outcome, known.Value)
		return nil
	}
	o := &outsideCall{
		step: s, policy: *u.policy, label: fmt.Sprintf("the undo of step %q", u.stepName), stepName: u.stepName, key: derivedKey(op.work.operation, db.UndoStep, name),
		call:   func(ctx context.Context, key string) ([]byte, error) { return nil, call(ctx, key) },
		encode: func(any) ([]byte, error) { return nil, nil },
	}
	if _, err := op.makeCall(o); err != nil && op.stopped == nil {
		return op.parkFor(err, o.tries, u.stepName, ReasonUndoFailed, "the undo of step %q has failed", u.stepName)
	}
	return op.stopError()
}
