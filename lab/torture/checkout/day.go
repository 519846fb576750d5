package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// The methods below do what the Day of a round plans (journal.Day).

// halfTheTime decides at random whether a planned failure happens this time. In finishAll, after
// the run, it always returns false.
func (r *running) halfTheTime() bool { return !r.calm && rand.IntN(2) == 0 }

// saw logs what the function got as the result of a step.
func (r *running) saw(step, what string) {
	r.note(journal.Event{Kind: journal.KindSaw, Op: r.name, Operation: r.ID(), Name: step, Value: what})
}

// putIn executes the step that this release inserts before the charge, if there is one.
func (r *running) putIn(round *journal.Round, n int) error {
	d, name := &round.Day, round.PutIn(n)
	switch {
	case !d.Has(d.Change, r.release):
		return nil
	case d.Change == journal.ChangedTx, d.Change == journal.ChangedCall:
		if !r.Changed(round.Switch(n)) {
			return nil
		}
	}
	switch d.Change {
	case journal.PutInTx, journal.ChangedTx:
		nonce, err := operation.Tx(r.Op, name, func(tx pgx.Tx) (string, error) { return r.write(tx, name, "") })
		r.values[name] = nonce
		return err
	case journal.PutInCall, journal.ChangedCall:
		value, err := operation.Call(r.Op, name, operation.Keyed(journal.LongWindow), func(context.Context, string) (string, error) {
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			return "checked", nil
		})
		r.values[name] = value
		return err
	}
	return nil
}

// reserve executes the Tx of a round. The function calls reserve before the charge and, with the
// parameter behind set, after the charge. In one of the two calls, depending on the plan, reserve
// does nothing.
func (r *running) reserve(round *journal.Round, n int, behind bool) error {
	if behind != round.Day.Behind {
		return nil
	}
	for _, name := range round.ReserveIn(r.release, n) {
		undos := []operation.Undo[string]{r.undoTx(journal.UndoOf(name, 0), round)}
		nonce, err := operation.Tx(r.Op, name, func(tx pgx.Tx) (string, error) { return r.write(tx, name, "") }, undos[:round.ReserveUndos()]...)
		if err != nil {
			return err
		}
		r.values[name] = nonce
	}
	return nil
}

// undoTx returns an undo that writes a row.
func (r *running) undoTx(name string, round *journal.Round) operation.Undo[string] {
	return operation.UndoTx(func(tx pgx.Tx, given string) error {
		_, err := r.write(tx, name, given)
		r.die(100)
		if err == nil && round.Day.Refuses && r.halfTheTime() {
			return errFlaky
		}
		return err
	})
}

// die kills this process with probability 1/times.
func (r *running) die(times int) {
	if !r.calm && rand.IntN(times) == 0 {
		r.note(journal.Event{Kind: journal.KindDie, Op: r.name, Operation: r.ID()})
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// count executes the step that returns a number which a float64 cannot represent.
func (r *running) count(round *journal.Round, n int) error {
	if !round.Day.Exact {
		return nil
	}
	const large = 1<<53 + 1
	value, err := operation.Tx(r.Op, round.Count(n), func(pgx.Tx) (map[string]any, error) {
		return map[string]any{"cents": int64(large)}, nil
	})
	if err != nil {
		return err
	}
	same := fmt.Sprint(value["cents"]) == fmt.Sprint(large)
	if number, ok := value["cents"].(json.Number); ok {
		same = number.String() == fmt.Sprint(large)
	}
	r.saw(round.Count(n), fmt.Sprint("as it was: ", same))
	return nil
}

// trouble causes the failure that the plan has after the charge, half of the time.
func (r *running) trouble(round *journal.Round, n int) error {
	kind, name := round.Day.Trouble, round.Confirm(n)
	switch kind {
	case journal.Violates, journal.Deferred:
		nonce, err := operation.Tx(r.Op, name, func(tx pgx.Tx) (string, error) {
			nonce, err := r.write(tx, name, "")
			if err == nil && r.halfTheTime() {
				err = violate(r.Context(), tx, kind, nonce)
			}
			return nonce, err
		})
		r.values[name] = nonce
		return err
	case journal.Panics:
		if r.halfTheTime() {
			panic(errFlaky)
		}
	case journal.Fails:
		if r.halfTheTime() {
			return errFlaky
		}
	}
	return nil
}

// violate breaks a unique constraint, at once or at COMMIT.
func violate(ctx context.Context, tx pgx.Tx, kind journal.Trouble, nonce string) error {
	if kind == journal.Violates {
		if _, err := tx.Exec(ctx, "SET CONSTRAINTS torture.once_id_key IMMEDIATE"); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO torture.once VALUES ($1::text), ($1::text)", nonce)
	return err
}

// leave executes the child operation of the round if the plan begins it at this spot.
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
