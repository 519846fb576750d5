package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// goOn goes on with an operation that was taken up.
func (w *work) goOn(ctx context.Context, t *store.Taken, steps *store.LoadSteps) longcall.Ending {
	if end, ok := w.own(ctx, t, steps); !ok {
		return end
	}
	return w.work(ctx, nil)
}

// work runs the function until the operation has ended, or goes on elsewhere. tx is the transaction that has claimed the key, if
// nothing is committed yet.
func (w *work) work(ctx context.Context, tx *txn.Tx) longcall.Ending {
	if w.recorded == nil {
		w.recorded = map[int]store.Step{}
	}
	w.recall()
	for pause, left := txn.RetryPause, w.call.Retries(); ; left-- {
		op, end := w.run(ctx, tx)
		if op.stopped == nil || op.stopped.why != again || w.epoch == 0 {
			return end
		}
		tx = nil
		cause := op.stopped.err
		if op.stopped.free {
			left++
		}
		if left <= 0 || txn.Sleep(ctx, pause.Next()) != nil {
			return w.giveUp(ctx, cause)
		}
		if end, ok := w.restart(ctx); !ok {
			return end
		}
	}
}

// run runs the function once.
func (w *work) run(ctx context.Context, tx *txn.Tx) (op *Op, end longcall.Ending) {
	op = &Op{work: w, tx: tx}
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	returned := false
	defer func() {
		if !returned { // the function has panicked, or ended its goroutine
			op.over = true
			w.dropped(op)
		}
	}()
	if w.instance != nil {
		_ = op.register()
	}
	var resp idem.Response
	var err error
	if op.stopped == nil {
		resp, err = w.definition.run(op, w.input)
	}
	op.over = true
	end = op.end(resp, err)
	returned = true
	return op, end
}

// dropped ends a run whose function, or whose undo, has panicked.
func (w *work) dropped(op *Op) {
	defer w.drop(op) // also if an undo panics, too, or is to be tried again
	if w.epoch > 0 && op.isPast() && !op.undoing {
		op.stopped = nil
		op.endFailing(errors.New("operation: its function has panicked"))
	}
}

// drop lets go of an operation that this process still has.
func (w *work) drop(op *Op) {
	op.close(nil)
	switch {
	case w.instance == nil:
	case w.epoch == 0:
		w.instance.leave(w.operation, false)
		w.abandon(longcall.Ending{})
	default:
		w.letGo(backoff(w.attempts), longcall.Ending{})
	}
}

// end tells what the run has come to, and says so to the database.
func (op *Op) end(resp idem.Response, err error) longcall.Ending {
	w := op.work
	rejected, isRejected := longcall.Response{}, false
	if err != nil {
		rejected, isRejected = w.call.Rejection(err)
	}
	passes := err != nil && !isRejected && !IsFinal(err) // it decides nothing: the function may have failed anywhere
	op.check(passes)
	if s := op.stopped; s != nil && s.why != ended {
		return op.endStopped(s)
	}
	if w.epoch == 0 {
		return w.unheld(longcall.Ending{Outcome: longcall.Unheld, Response: longcall.Response(resp), Err: ofFunction(err)})
	}
	if w.cancelled && (op.stopped != nil || !passes || op.cut) { // also if nothing was left to do but to settle a call
		if left := op.unbacked(op.stopped == nil); len(left) > 0 && !w.accepted && !w.undoing {
			return op.endUnbacked(left)
		}
	}
	if w.cancelled && (op.stopped != nil || err == nil || op.cut) {
		return op.undo(longcall.Response{}, false, ErrCancelled)
	}
	switch {
	case err == nil && w.undoing, err == nil && op.stopped != nil:
		return op.endChanged("the function no longer says so")
	case err == nil:
		return op.finish(longcall.Response(resp))
	case isRejected, IsFinal(err):
		return op.undo(rejected, isRejected, ofFunction(err))
	case op.stopped != nil:
		return op.endChanged("the function asks for more")
	}
	if op.isPast() {
		return op.endFailing(err)
	}
	op.close(nil)
	return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: ofFunction(err)})
}

// check holds what the function has asked for, now that it has returned, against what is on record.
func (op *Op) check(passes bool) {
	if op.grouped && !passes && op.stopped == nil {
		_ = op.misuse("Go without Wait")
	}
	_ = op.halted()
	if op.stopped == nil && !passes && op.unread() || op.leavesBegun() {
		op.stopped = nil
		op.current = op.firstUnread()
		_ = op.park("the code has changed: it no longer asks for step %q, which is recorded", op.firstUnread())
	}
}

// unread reports whether something is on record that the function has not asked for.
func (op *Op) unread() bool { return len(op.work.recorded) > op.seq }

// leaves reports whether the operation may be undone although its function fails in front of what is on record: a person has accepted that, or it
// is being undone, and no undo that is still to be done is among it.
func (op *Op) leaves() bool {
	w := op.work
	if w.isLeft(op.seq + 1) {
		return true
	}
	for seq := op.seq + 1; seq <= len(w.recorded) && !w.isLeft(seq); seq++ {
		if w.recorded[seq].Outcome == store.StepRegistered {
			return false
		}
	}
	return w.undoing
}

// leavesBegun reports whether the run came to the end of what is on record in front of a call that was begun together with others.
func (op *Op) leavesBegun() bool {
	if op.stopped == nil || op.stopped.why != ended {
		return false
	}
	for seq := op.seq + 1; seq <= len(op.work.recorded); seq++ {
		if op.work.recorded[seq].Outcome == store.StepBegun {
			return true
		}
	}
	return false
}

// patience is how often an operation that is cancelled is gone on with whose function fails, before it is ended as far as the function has
// come; stamina is how often where that would leave out what is on record, which asks for a person. That is some minutes.
const (
	patience = 3
	stamina  = 8
)

// isPast reports whether the operation is cancelled, and its function has failed often enough.
func (op *Op) isPast() bool {
	most := patience
	if op.unread() && !op.leaves() {
		most = stamina
	}
	return op.work.cancelled && op.work.attempts >= most && op.ctx.Err() == nil
}

// endFailing ends an operation that is cancelled and whose function fails in each run: it is undone, unless the function fails in front of
// what is on record, whose undos are not known then, or behind a call that nothing takes back: a person decides, of either by itself. A call that
// was begun is never left out.
func (op *Op) endFailing(cause error) longcall.Ending {
	w := op.work
	begun, inDoubt := w.begun()
	switch left := op.unbacked(false); {
	case inDoubt && begun.Seq > op.seq:
		op.current = begun.Name
		_ = op.parkFor(cause, "it was cancelled, and its function fails before it asks for step %q, which was begun: Retry it with code that does not, or Resolve the step",
			begun.Name)
		return op.endStopped(op.stopped)
	case op.unread() && !op.leaves():
		op.current = op.firstUnread()
		_ = op.parkFor(cause, "it was cancelled, and its function fails before it asks for step %q, which is recorded: Retry it with code that does not, or take back "+
			"by hand what was done, and Cancel again, which leaves it as it is", op.firstUnread())
		op.stopped.unread = op.seq + 1
		return op.endStopped(op.stopped)
	case len(left) > 0 && !w.undoing && !w.accepted:
		return op.endUnbacked(left)
	}
	return op.undo(longcall.Response{}, false, ErrCancelled)
}

// endUnbacked parks an operation that is cancelled, and has done what nothing takes back. Code with an undo can be had where no later step
// is on record: that has the place.
func (op *Op) endUnbacked(left []store.Step) longcall.Ending {
	what, has := "it", "has"
	if len(left) > 1 {
		what, has = "them", "have"
	}
	way := fmt.Sprintf("take %[1]s back by hand, and Cancel again, which leaves %[1]s as done", what)
	if len(op.work.recorded) <= left[len(left)-1].Seq {
		way = "Retry it with code that has one, or " + way
	}
	op.stopped = &stop{why: parked, step: left[0].Name, unbacked: true,
		reason: fmt.Sprintf("it was cancelled, and %s %s happened, which no undo takes back: %s", named(left), has, way)}
	return op.endStopped(op.stopped)
}

func (op *Op) firstUnread() string { return op.work.recorded[op.seq+1].Name }

// restart takes the operation up again that this process was working on, and reads what is on record. Another process may have it
// by now. What a call has returned that is not on record yet outlasts the caller, who may leave meanwhile.
func (w *work) restart(ctx context.Context) (longcall.Ending, bool) {
	at := w.at
	w.instance.leave(w.operation, true)
	w.abandon(longcall.Ending{})
	taking := ctx
	if len(w.returned) > 0 {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoLimit)
		defer cancel()
		taking = lasting
	}
	end, ok := w.takeUp(taking)
	switch {
	case !ok:
		w.hide()
		return end, false
	case w.at.Seq == at.Seq:
		w.at.Tries = max(w.at.Tries, at.Tries)
	}
	if ctx.Err() != nil {
		return w.letGo(0, longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)}), false
	}
	return end, true
}

// giveUp ends the call of an operation that cannot go on because of cause.
func (w *work) giveUp(ctx context.Context, cause error) longcall.Ending {
	if ctx.Err() != nil {
		return w.letGo(0, longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)})
	}
	return w.letGo(time.Second, longcall.Ending{Outcome: longcall.Failed, Err: cause})
}

// endChanged parks an operation that is to be undone, and whose function goes another way now.
func (op *Op) endChanged(how string) longcall.Ending {
	op.parkChanged(how)
	return op.endStopped(op.stopped)
}

func (op *Op) parkChanged(how string) {
	op.stopped = nil // which said that the end of what is on record was reached
	_ = op.park("the code has changed: it was decided that the operation is undone, and %s", how)
}
