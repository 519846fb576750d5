package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
)

// endingOf returns how a function has ended that has returned err.
func endingOf(err error) ending {
	if err == nil {
		return endAnswered
	}
	if _, rejected := bridge.RejectionOf(err); rejected || IsFinal(err) {
		return endFinal
	}
	return endFailed
}

// foreignError is an error of the function about another operation, which has ended, or is parked.
// The operation of the function goes on, so errors.Is and errors.As must not find that this one
// has.
type foreignError struct{ cause error }

// ofFunction returns an error with which the function has ended a run, and not the operation.
func ofFunction(err error) error {
	var ended bridge.ForDuplicates
	if errors.As(err, &ended) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrParked) {
		return &foreignError{cause: err}
	}
	return err
}

func (e *foreignError) Error() string { return e.cause.Error() }

func (e *foreignError) Is(target error) bool {
	return target != ErrCanceled && target != ErrParked && errors.Is(e.cause, target)
}

func (e *foreignError) As(target any) bool {
	switch target.(type) {
	case **ParkedError, **canceledError, **endedError, *bridge.ForDuplicates:
		return false
	}
	return errors.As(e.cause, target)
}

// judge returns what follows from the end of the function, or why the run was stopped before that.
func (op *Op) judge(err error) (v verdict, how ending, s *stop) {
	how = endingOf(err)
	if op.grouped && how != endFailed && op.stopped == nil {
		_ = op.misuse("Go without Wait")
	}
	_ = op.halted()
	switch s := op.stopped; {
	case s != nil && s.why != stopUnwound:
		return v, how, s
	case s != nil: // no step may be left behind
		how = endFinal
	}
	return decide(&op.work.journal, request{seq: op.seq, end: how}), how, nil
}

// end ends the run as decide says, and commits that where anything of the operation is committed.
func (op *Op) end(resp idem.Response, err error) bridge.Ending {
	w := op.work
	v, how, s := op.judge(err)
	if s != nil {
		return op.endStopped(s)
	}
	if w.epoch == 0 {
		return w.unheld(bridge.Ending{Outcome: bridge.Uncommitted, Response: bridge.Response(resp), Err: ofFunction(err)})
	}
	switch {
	case how == endFailed && op.ctx.Err() != nil:
		return op.endLeft()
	case v.do == unwind:
		return op.unwind(err)
	case v.do == finish:
		return op.finish(bridge.Response(resp))
	case v.do == park:
		_ = op.obey(v)
		op.stopped.cause = err
		return op.endStopped(op.stopped)
	}
	op.close(nil)
	return w.release(backoff(w.journal.runs), failedWith(ofFunction(err)), err)
}

// unheld ends a run that has committed nothing and needs no commit of this package: the caller
// completes the operation like an idem.Do.
func (w *work) unheld(end bridge.Ending) bridge.Ending {
	if w.instance != nil {
		return w.leave(end)
	}
	return end
}

// endStopped ends a run that was stopped.
func (op *Op) endStopped(s *stop) bridge.Ending {
	w := op.work
	switch {
	case s.why == stopUnknown:
		return w.leaveUnreleased(bridge.Ending{Outcome: bridge.Unknown, Err: s.err})
	case w.epoch == 0 && s.why == stopAgain:
		return w.unheld(bridge.Ending{Outcome: bridge.RolledBack, Err: s.err})
	case w.epoch == 0 && s.why == stopParked:
		return w.unheld(failedWith(s))
	case w.epoch == 0:
		return w.unheld(failedWith(s.err))
	}
	switch s.why {
	case stopLost:
		op.close(nil)
		w.keepInMemory()
		return w.leave(bridge.Ending{Outcome: bridge.InProgress})
	case stopSuspended:
		return w.leave(bridge.Ending{Outcome: bridge.InProgress})
	case stopParked:
		op.close(nil)
		if op.unwinds {
			op.recordDecision()
		}
		w.recordOutcomes(commit{at: w.at})
		return w.parkAs(op.ctx, s)
	case stopLeft:
		return op.endLeft()
	case stopAgain:
		op.close(s.err)
		return bridge.Ending{}
	}
	op.close(s.err)
	return w.fail(s.err)
}

// endLeft releases an operation whose caller has left.
func (op *Op) endLeft() bridge.Ending {
	op.close(nil)
	return op.work.release(0, failedWith(op.work.leaving(op.ctx)), nil)
}

// finish completes the operation: the steps since the last commit, the answer, and the end, in one
// transaction.
func (op *Op) finish(resp bridge.Response) bridge.Ending {
	w := op.work
	complete, err := w.call.Completion(&w.key, resp, db.Completed)
	if err != nil {
		return op.fail(err)
	}
	return op.complete(complete, resp, commit{free: true, state: db.OperationCompleted})
}

// complete makes the last commit of an operation that has an answer.
func (op *Op) complete(complete *db.Complete, resp bridge.Response, c commit) bridge.Ending {
	w := op.work
	notify, err := w.notifyParent(&childEnd{State: c.state, Response: (*idem.Response)(&resp)})
	if err != nil {
		return op.fail(err)
	}
	c.with, c.wakes = append(append(c.with, complete), notify...), len(notify) > 0
	if err := op.commit(c); err != nil {
		return op.endStopped(op.stopped)
	}
	return w.leave(bridge.Ending{Outcome: bridge.Recorded, Record: &db.Record{
		SameHash: true, ExecutionID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}

// releaseAfterRetries ends the call after an error that another run in this process would meet
// again. The operation is due again after a second.
func (w *work) releaseAfterRetries(ctx context.Context, cause error) bridge.Ending {
	if ctx.Err() != nil {
		return w.release(0, failedWith(w.leaving(ctx)), nil)
	}
	return w.release(time.Second, failedWith(cause), cause)
}

// release makes the operation due for any process after pause, and leaves it. err is the error of
// the run, if it has one.
func (w *work) release(pause time.Duration, end bridge.Ending, err error) bridge.Ending {
	var last *lastError
	if err != nil {
		last = &lastError{attempt: w.journal.runs, err: err}
	}
	if w.recordOutcomes(commit{free: true, at: db.At{Pause: pause}, failure: last}) {
		return w.leave(end)
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if w.call.Engine().Query(ctx, &db.ReleaseOperation{
		OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Pause: pause, Error: w.stepError(last),
	}) != nil {
		return w.leaveUnreleased(end)
	}
	return w.leave(end)
}

// fail releases the operation after a run that has failed.
func (w *work) fail(err error) bridge.Ending {
	return w.release(backoff(w.journal.runs), failedWith(err), err)
}

// fail rolls the transaction back, and releases the operation.
func (op *Op) fail(err error) bridge.Ending {
	op.close(nil)
	return op.work.fail(err)
}

// leaving is the error of a caller that leaves an operation to others.
func (w *work) leaving(ctx context.Context) error {
	return fmt.Errorf("operation: its caller has left: %w: %w",
		&idem.InProgressError{Key: "of operation " + w.operation, RetryAfter: time.Second}, endOf(ctx))
}

// backoff returns how long an operation waits for its next run after runs without progress.
func backoff(runs int) time.Duration {
	return time.Second << min(runs, 6)
}

// parkAs stops the operation until a person has decided.
func (w *work) parkAs(ctx context.Context, s *stop) bridge.Ending {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	p := &db.ParkOperation{OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Reason: string(s.reason), ReasonStep: s.step, ReasonText: storederror.Storable(s.text)}
	if s.cause != nil {
		last := &lastError{step: s.step, attempt: s.tries, err: s.cause}
		if s.reason == ReasonFunctionFailed {
			last.step, last.attempt = "", w.journal.runs
		}
		p.Error = w.stepError(last)
	}
	if err := w.call.Engine().Query(ctx, p); err != nil {
		return w.leaveUnreleased(failedWith(err))
	}
	if p.Affected == 0 { // another process has taken it over
		return w.leave(bridge.Ending{Outcome: bridge.InProgress})
	}
	return w.leave(bridge.Ending{Outcome: bridge.Failed, Err: &ParkedError{
		OperationID: w.operation, Step: s.step, Reason: s.reason, ReasonText: p.ReasonText, Cause: s.cause,
	}})
}

// leave takes the operation off the list of those that this process works on, and releases the
// instance.
func (w *work) leave(end bridge.Ending) bridge.Ending {
	w.instance.Leave(w.operation)
	return w.releaseInstance(end)
}

// leaveUnreleased is leave where the database may still have this process as the owner of the
// operation. The instance finds out later, and releases the operation.
func (w *work) leaveUnreleased(end bridge.Ending) bridge.Ending {
	w.instance.LeaveUnreleased(w.operation)
	return w.releaseInstance(end)
}

// releaseInstance releases the instance, and the turn of a suspect.
func (w *work) releaseInstance(end bridge.Ending) bridge.Ending {
	w.instance.Release()
	w.instance = nil
	if w.suspected {
		w.suspected = false
		w.turn.end()
	}
	return end
}

// unwind runs the undos of all done steps, the last step first, and ends the operation: in
// ErrCanceled if it was canceled, else in the recorded error, else in err.
func (op *Op) unwind(err error) bridge.Ending {
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
	last := commit{free: true, state: db.OperationFailed}
	var complete *db.Complete
	if rejected != nil {
		var err error
		if complete, err = w.call.Completion(&w.key, *rejected, db.Failed); err != nil {
			return w.fail(err)
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
func (op *Op) endUndone(end error, last commit) bridge.Ending {
	w := op.work
	last.state, w.cause = db.OperationUndone, end
	notify, err := w.notifyParent(&childEnd{State: last.state, Canceled: w.journal.canceled})
	if err != nil {
		return op.fail(err)
	}
	last.with, last.wakes = append(notify, &db.HoldKey{Key: &w.key, Room: db.Free}), len(notify) > 0
	if err := op.commit(last); err != nil {
		return op.endStopped(op.stopped)
	}
	return w.leave(failedWith(w.cause))
}

// settleEnd returns the error in which the operation ends, or the response of a rejection. The
// error of the function is recorded with the next commit, and later runs cannot change it. Cancel
// overrides a recorded error.
func (op *Op) settleEnd(err error) (end error, rejected *bridge.Response, stopped error) {
	w := op.work
	if w.journal.canceled {
		return ErrCanceled, nil, nil
	}
	stored := []byte(nil)
	if w.journal.end != nil {
		stored = w.journal.end.Value
	} else {
		stored, _ = op.failure(err)
		op.record(&step{seq: op.nextSeq(), kind: db.EndStep, name: "error"}, db.StepFailed, stored)
	}
	seen, failed := restore(w.definition.knownErrors, stored)
	if failed != nil {
		return nil, nil, op.park("", ReasonValueUnreadable, "the recorded error in which it ends %v", failed)
	}
	if resp, isRejected := bridge.RejectionOf(seen); isRejected {
		return nil, &resp, nil
	}
	return &endedError{cause: ofFunction(seen)}, nil, nil
}

// recordDecision records that the operation is being undone, for a run that parks at an undo, so
// that Status.Undos lists the undos that are still to run. The writes of an uncommitted UndoTx are
// rolled back.
func (op *Op) recordDecision() {
	stopped := op.stopped
	op.pending = slices.DeleteFunc(op.pending, func(r db.RecordStep) bool { return r.Step.Kind == db.UndoStep && isInTx(&r.Step) })
	if len(op.pending) > 0 {
		op.commitStopped(commit{always: true, at: op.work.at})
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

// markRolledBack marks pending Tx steps as rolled back, because their transaction was not
// committed. They are recorded all the same, so that later steps keep their positions.
func (op *Op) markRolledBack() {
	for i := range op.pending {
		if s := &op.pending[i].Step; s.Kind == db.TxStep && s.Outcome == db.StepDone {
			s.Outcome = db.StepRolledBack
		}
	}
}

// correctUndos sets the recorded number of undos of each done step to that of the running code.
// Status and PreviewCancel read it. An undo that has a row counts, also if the code no longer has
// it. If such an undo is in doubt, and this process does not know its outcome, the operation parks.
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
		if s.Outcome == db.StepBegun && !planned[name] && op.work.outcomes[s.Seq].Name != name {
			return op.park(of, ReasonCallInDoubt, "the undo of step %q may have happened, and the code no longer has it: ask the other side, and Resolve the step", of)
		}
	}
	for seq := 1; seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome == db.StepDone && s.Undos != count[s.Name] && op.outcomeOf(seq) == db.StepDone {
			op.record(&step{seq: seq, kind: s.Kind, name: s.Name, undos: count[s.Name]}, db.StepDone, s.Value)
		}
	}
	return nil
}

// awaitChildren waits for the children that have not ended: they were canceled with their parent.
func (op *Op) awaitChildren() error {
	for seq := 1; seq <= len(op.work.journal.steps); seq++ {
		s := op.work.journal.steps[seq]
		if s.Kind != db.ChildStep || s.Outcome != db.StepWaiting || op.outcomeOf(seq) != db.StepWaiting {
			continue
		}
		op.awaits = true
		if _, err := op.child(&step{seq: seq, kind: s.Kind, name: s.Name, do: wait, recorded: &s}, nil); op.stopped != nil {
			return err
		}
	}
	return nil
}

// runUndo runs an undo if its step is done, and the undo is not recorded as done.
func (op *Op) runUndo(u *plannedUndo) error {
	name := undoName(u.of, u.index)
	recorded, begun := op.work.journal.undos[name]
	if op.outcomeOf(u.seq) != db.StepDone || begun && recorded.Outcome == db.StepDone {
		return nil
	}
	op.current = u.of
	tx, call, err := u.prepare()
	if err != nil {
		return op.park(u.of, ReasonValueUnreadable, "the recorded value of step %q does not decode for its undo: the code has changed", u.of)
	}
	s := &step{seq: op.nextSeq(), kind: db.UndoStep, name: name, do: run}
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
	if known := op.work.unrecordedOutcome(s); known != nil {
		op.record(s, known.Outcome, known.Value)
		return nil
	}
	o := &outside{
		step: s, policy: *u.policy, what: fmt.Sprintf("the undo of step %q", u.of), of: u.of, key: derivedKey(op.work.operation, db.UndoStep, name),
		call:   func(ctx context.Context, key string) ([]byte, error) { return nil, call(ctx, key) },
		encode: func(any) ([]byte, error) { return nil, nil },
	}
	if _, err := op.callOut(o); err != nil && op.stopped == nil {
		return op.parkFor(err, o.tries, u.of, ReasonUndoFailed, "the undo of step %q has failed", u.of)
	}
	return op.halted()
}
