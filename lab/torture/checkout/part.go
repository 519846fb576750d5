package checkout

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// leave executes the child of the round if at is its spot.
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
	answer, err := operation.Child(r.Op, name, r.part, in.PartOf(r.Seed, r.release, n), r.partUndos(name, round, n)...)
	failed, ok := errors.AsType[*operation.ChildError](err)
	switch {
	case err == nil:
		r.saw(name, journal.ChildSaid("completed", false, answer.Body))
		if part.Cancel && r.halfTheTime() {
			go r.cancelSoon(r.ID())
		}
		r.die(200)
		return nil
	case !ok:
		return err
	case failed.Rejected != nil:
		r.saw(name, journal.ChildSaid("failed", false, failed.Rejected.Body))
	default:
		r.saw(name, journal.ChildSaid("undone", failed.Canceled, nil))
	}
	switch part.Then {
	case journal.GivesUp:
		return err
	case journal.Rejected:
		return idem.Reject(r.response(409))
	}
	return nil
}

// partUndos returns the undos of the child.
func (r *running) partUndos(name string, round *journal.Round, n int) []operation.Undo[idem.Response] {
	undo := journal.UndoOf(name, 0)
	switch round.Part.Undo {
	case journal.UndoTx:
		return []operation.Undo[idem.Response]{operation.UndoTx(func(tx pgx.Tx, done idem.Response) error {
			_, err := r.write(tx, undo, string(done.Body))
			r.die(100)
			return err
		})}
	case journal.UndoCall:
		back := r.customer(undo, round.Part.Safety)
		back.place, back.refunds, back.window = "refund of "+journal.PartPlace(n), journal.PartPlace(n), journal.LongWindow
		return []operation.Undo[idem.Response]{operation.UndoCall(back.policy(), func(ctx context.Context, key string, done idem.Response) error {
			back.given = string(done.Body)
			_, err := back.book(ctx, key)
			return err
		})}
	}
	return nil
}
