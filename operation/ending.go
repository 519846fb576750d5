package operation

import (
	"context"

	"github.com/idem-go/idem/internal/hold"
	"github.com/idem-go/idem/internal/store"
)

// What a run comes to, as it is told to the database.

// unheld gives back what an operation that is a transaction like any other has not needed.
func (w *work) unheld(end hold.Ending) hold.Ending {
	if w.instance != nil {
		w.instance.leave(w.operation, false)
		return w.abandon(end)
	}
	return end
}

// endStopped ends a run that was stopped.
func (op *Op) endStopped(s *stop) hold.Ending {
	w := op.work
	switch {
	case s.why == unknown:
		w.instance.leave(w.operation, true)
		return w.abandon(hold.Ending{Outcome: hold.Unknown, Err: s.err})
	case w.epoch == 0 && s.why == again:
		return w.unheld(hold.Ending{Outcome: hold.Undone, Err: s.err})
	case w.epoch == 0 && s.why == parked:
		return w.unheld(hold.Ending{Outcome: hold.Failed, Err: s})
	case w.epoch == 0:
		return w.unheld(hold.Ending{Outcome: hold.Failed, Err: s.err})
	}
	switch s.why {
	case lost:
		op.close(nil)
		w.instance.leave(w.operation, false)
		return w.abandon(hold.Ending{Outcome: hold.Elsewhere})
	case suspended:
		w.instance.leave(w.operation, false)
		return w.abandon(hold.Ending{Outcome: hold.Elsewhere})
	case parked:
		return op.endParked(s)
	case left:
		return op.endLeft()
	case again:
		op.close(s.err)
		return hold.Ending{}
	}
	op.close(s.err)
	return w.letGo(backoff(w.attempts), hold.Ending{Outcome: hold.Failed, Err: s.err})
}

// endParked stops the operation until a person has seen to it. What calls have returned is recorded before.
func (op *Op) endParked(s *stop) hold.Ending {
	w := op.work
	op.keepReturned(store.At{Step: w.at.Step, Seq: w.at.Seq}, false)
	end := w.parkNow(op.ctx, w.at.Step, "%s", s.reason)
	if parked, ok := end.Err.(*ParkedError); ok {
		parked.Cause = s.cause
	}
	return end
}

// endLeft lets go of an operation whose caller has left.
func (op *Op) endLeft() hold.Ending {
	w := op.work
	end := hold.Ending{Outcome: hold.Failed, Err: w.leaving(op.ctx)}
	if op.keepReturned(store.At{}, true) {
		w.instance.leave(w.operation, false)
		return w.abandon(end)
	}
	return w.letGo(0, end)
}

// keepReturned records what calls have returned since the last commit, although the run has ended. Without it the calls would
// have to be made again. It reports whether it was needed, and done. That the operation is undone is not said here: what the
// function has registered behind the calls is not recorded, and would not be asked for again.
func (op *Op) keepReturned(at store.At, free bool) bool {
	op.close(nil)
	kept := 0
	for kept < len(op.pending) && op.returnedBy(&op.pending[kept].Step) {
		kept++
	}
	op.pending, op.signals, op.undoing = op.pending[:kept], nil, false
	if kept == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(op.ctx), letGoLimit)
	defer cancel()
	stopped := op.stopped
	defer func() { op.stopped = stopped }() // what becomes of this commit is not what has ended the run
	op.ctx, op.stopped = ctx, nil
	return op.commit(commit{at: at, free: free}) == nil
}

// returnedBy reports whether a step is what a call has returned: one that takes something back is, too, once it is on record that
// the operation is undone.
func (op *Op) returnedBy(s *store.Step) bool {
	return s.Kind == store.CallStep || op.work.undoing && s.Kind == store.UndoStep && s.Outcome == store.StepUndone
}

// finish completes the operation: the steps since the last commit, the answer, and the end, in one transaction.
func (op *Op) finish(resp hold.Response) hold.Ending {
	w := op.work
	complete, err := w.call.Completion(&w.key, resp, store.Completed)
	if err != nil {
		op.close(nil)
		return w.letGo(backoff(w.attempts), hold.Ending{Outcome: hold.Failed, Err: err})
	}
	return op.complete(complete, resp, commit{free: true, state: store.OperationCompleted})
}

// complete makes the last commit.
func (op *Op) complete(complete *store.Complete, resp hold.Response, c commit) hold.Ending {
	w := op.work
	c.with = append(c.with, complete)
	if err := op.commit(c); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.leave(w.operation, false)
	return w.abandon(hold.Ending{Outcome: hold.Recorded, Record: &store.Record{
		SameHash: true, OperationID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}
