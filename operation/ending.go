package operation

import (
	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
)

// What a run comes to, as it is told to the database.

// unheld gives back what an operation that is a transaction like any other has not needed.
func (w *work) unheld(end longcall.Ending) longcall.Ending {
	if w.instance != nil {
		w.instance.leave(w.operation, false)
		return w.abandon(end)
	}
	return end
}

// endStopped ends a run that was stopped.
func (op *Op) endStopped(s *stop) longcall.Ending {
	w := op.work
	switch {
	case s.why == unknown:
		w.instance.leave(w.operation, true)
		return w.abandon(longcall.Ending{Outcome: longcall.Unknown, Err: s.err})
	case w.epoch == 0 && s.why == again:
		return w.unheld(longcall.Ending{Outcome: longcall.Undone, Err: s.err})
	case w.epoch == 0 && s.why == parked:
		return w.unheld(longcall.Ending{Outcome: longcall.Failed, Err: s})
	case w.epoch == 0:
		return w.unheld(longcall.Ending{Outcome: longcall.Failed, Err: s.err})
	}
	switch s.why {
	case lost:
		op.close(nil)
		w.hide()
		w.instance.leave(w.operation, false)
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	case suspended:
		w.instance.leave(w.operation, false)
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	case parked:
		return op.endParked(s)
	case left:
		return op.endLeft()
	case again:
		op.close(s.err)
		return longcall.Ending{}
	}
	op.close(s.err)
	return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: s.err})
}

// endParked stops the operation until a person has seen to it. What calls have returned is recorded before.
func (op *Op) endParked(s *stop) longcall.Ending {
	w := op.work
	op.close(nil)
	w.keep(commit{at: w.at})
	step := s.step
	undecoded := s.undecoded
	if begun, ok := w.begun(); ok && !s.unfit { // Resolve is about this one
		step, undecoded = begun.Name, false
	}
	end := w.parkAs(op.ctx, store.ParkOperation{Step: step, Reason: s.reason, Unread: s.unread, Unbacked: s.unbacked, Unfit: s.unfit, Undecoded: undecoded})
	if parked, ok := end.Err.(*ParkedError); ok {
		parked.Cause = s.cause
	}
	return end
}

// endLeft lets go of an operation whose caller has left.
func (op *Op) endLeft() longcall.Ending {
	op.close(nil)
	return op.work.letGo(0, longcall.Ending{Outcome: longcall.Failed, Err: op.work.leaving(op.ctx)})
}

// finish completes the operation: the steps since the last commit, the answer, and the end, in one transaction.
func (op *Op) finish(resp longcall.Response) longcall.Ending {
	w := op.work
	complete, err := w.call.Completion(&w.key, resp, store.Completed)
	if err != nil {
		op.close(nil)
		return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: err})
	}
	return op.complete(complete, resp, commit{free: true, state: store.OperationCompleted})
}

// complete makes the last commit.
func (op *Op) complete(complete *store.Complete, resp longcall.Response, c commit) longcall.Ending {
	w := op.work
	told, err := w.tells(&childEnd{State: c.state, Response: (*idem.Response)(&resp)})
	if err != nil {
		op.close(nil)
		return w.letGo(backoff(w.attempts), longcall.Ending{Outcome: longcall.Failed, Err: err})
	}
	c.with, c.rouses = append(append(c.with, complete), told...), len(told) > 0
	if err := op.commit(c); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.leave(w.operation, false)
	return w.abandon(longcall.Ending{Outcome: longcall.Recorded, Record: &store.Record{
		SameHash: true, ExecutionID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}
