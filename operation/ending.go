package operation

import (
	"github.com/idem-go/idem"
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
		w.hide()
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
	op.close(nil)
	w.keep(commit{at: w.at})
	step := s.step
	if begun, ok := w.begun(); ok && !s.unfit { // Resolve is about this one
		step = begun.Name
	}
	end := w.parkAs(op.ctx, store.ParkOperation{Step: step, Reason: s.reason, Unbacked: s.unbacked, Unfit: s.unfit})
	if parked, ok := end.Err.(*ParkedError); ok {
		parked.Cause = s.cause
	}
	return end
}

// endLeft lets go of an operation whose caller has left.
func (op *Op) endLeft() hold.Ending {
	op.close(nil)
	return op.work.letGo(0, hold.Ending{Outcome: hold.Failed, Err: op.work.leaving(op.ctx)})
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
	told, err := w.tells(&childEnd{State: c.state, Response: (*idem.Response)(&resp)})
	if err != nil {
		op.close(nil)
		return w.letGo(backoff(w.attempts), hold.Ending{Outcome: hold.Failed, Err: err})
	}
	c.with, c.rouses = append(append(c.with, complete), told...), len(told) > 0
	if err := op.commit(c); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.leave(w.operation, false)
	return w.abandon(hold.Ending{Outcome: hold.Recorded, Record: &store.Record{
		SameHash: true, ExecutionID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}
