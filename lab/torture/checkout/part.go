package checkout

import (
	"context"
	"errors"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// leave leaves a part of the round to a child, if this is its spot, and says how that is taken back.
func (r *running) leave(in *journal.Plan, round *journal.Round, n int, at journal.Spot) error {
	part := &round.Part
	if part.At != at {
		return nil
	}
	if part.Cancel && r.halfTheTime() {
		go r.cancelSoon(r.ID())
	}
	r.die(200)
	name := round.PartIn(r.release, n)
	answer, err := operation.Child(r.Op, name, r.part, in.PartOf(r.seed, r.release, n))
	failed, ok := errors.AsType[*operation.ChildError](err)
	switch {
	case err == nil:
		r.saw(name, journal.ChildSaid("completed", false, answer.Body))
		if part.Cancel && r.halfTheTime() {
			r.cancelBehind(part)
		}
		r.die(200)
		return r.takeBack(round, n)
	case !ok:
		return err
	case failed.Rejected != nil:
		r.saw(name, journal.ChildSaid("failed", false, failed.Rejected.Body))
	default:
		r.saw(name, journal.ChildSaid("undone", failed.Cancelled, nil))
	}
	r.bare = true
	switch part.Then {
	case journal.GivesUp:
		return err
	case journal.Rejected:
		return idem.Reject(r.response(409))
	}
	return nil
}

// cancelBehind cancels the operation behind a child that has completed: soon, or, where nothing takes that back, at once, before the function
// has come to its end.
func (r *running) cancelBehind(part *journal.Part) {
	if part.Undo != journal.NoUndo {
		go r.cancelSoon(r.ID())
		return
	}
	r.cancelSoon(r.ID())
}

// takeBack says how what a child has done is taken back.
func (r *running) takeBack(round *journal.Round, n int) error {
	name := round.Unpart(n)
	switch round.Part.Undo {
	case journal.UndoTx:
		return r.giveBack(name, 1)
	case journal.UndoCall:
		back := r.customer(name, round.Part.Safety)
		back.place, back.refunds, back.elsewhere, back.window = "refund of "+journal.PartPlace(n), journal.PartPlace(n), true, journal.LongWindow
		return operation.Undo(r.Op, name, back.safetyWithin(), func(ctx context.Context, key string) error {
			_, err := back.book(ctx, key)
			return err
		})
	}
	return nil
}
