package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// takeUp makes the operation this process's own, if it has no owner. Otherwise the ending says why.
func (w *work) takeUp(ctx context.Context) (longcall.Ending, bool) {
	t, end := w.take(ctx, w.call.Engine())
	if t == nil {
		return end, false
	}
	return w.own(ctx, &t.Taken, &t.steps)
}

// takenUp is an operation that was taken up, with what it remembers.
type takenUp struct {
	store.Taken
	steps store.LoadSteps
}

// take takes the operation up, if it has no owner. Otherwise the ending says why, and nothing is held.
func (w *work) take(ctx context.Context, engine *txn.Engine) (*takenUp, longcall.Ending) {
	instance, err := adopt(ctx, engine)
	if err != nil {
		return nil, w.unavailable(ctx, err)
	}
	w.instance = instance
	take := store.TakeOperation{OperationID: w.operation, Owner: instance.number, Epoch: w.epoch}
	steps := store.LoadSteps{OperationID: w.operation}
	show := store.ShowOperation{OperationID: w.operation}
	reserved := false
	err = instance.alone(ctx, func() error {
		reserved = instance.reserve(w.operation)
		return nil
	})
	switch {
	case err != nil:
		return nil, w.abandon(w.unavailable(ctx, err))
	case !reserved: // another goroutine of this process works on it
		return nil, w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	}
	err = ask(ctx, engine, &take, &steps, &show)
	if err == nil && show.MayBeSuspect() && !take.Found && takeTurn() {
		take.Alone = true
		defer func() { w.keepTurn(take.Found, &take.Taken) }()
		err = ask(ctx, engine, &take, &steps, &show)
	}
	switch {
	case err != nil:
		take.Found = false // the turn is not kept for what is not worked on
		instance.leave(w.operation, true)
		return nil, w.abandon(w.unavailable(ctx, err))
	case !take.Found:
		instance.leave(w.operation, false)
		return nil, w.abandon(w.elsewhere(&show))
	}
	return &takenUp{take.Taken, steps}, longcall.Ending{}
}

// ask makes a round trip, and makes it again if the server asks for that: where transactions are serializable by default, a process that
// takes an operation up may be refused because others do, too.
func ask(ctx context.Context, engine *txn.Engine, requests ...txn.Request) error {
	err := engine.Query(ctx, requests...)
	for pause, left := txn.RetryPause, 5; txn.Rerunnable(err) && left > 0; left-- {
		if txn.Sleep(ctx, pause.Next()) != nil {
			return err
		}
		err = engine.Query(ctx, requests...)
	}
	return err
}

// own takes over what is on record of an operation that was taken up. It reports whether that may be gone on with.
func (w *work) own(ctx context.Context, t *store.Taken, steps *store.LoadSteps) (longcall.Ending, bool) {
	w.attempts = t.Attempts
	err := w.adopted(t, steps)
	switch {
	case err != nil:
		return w.letGo(backoff(t.Attempts), longcall.Ending{Outcome: longcall.Failed, Err: err}), false
	case t.Name != w.definition.name:
		return w.letGo(0, longcall.Ending{Outcome: longcall.Failed, Err: fmt.Errorf("operation: it is an operation %q, not %q", t.Name, w.definition.name)}), false
	}
	return w.survives(ctx, t.Deaths)
}

// survives parks an operation that too many processes have not survived.
func (w *work) survives(ctx context.Context, deaths int) (longcall.Ending, bool) {
	if deaths < w.definition.maxDeaths {
		return longcall.Ending{}, true
	}
	reason := fmt.Sprintf("%d processes in a row have ended without a word while they worked on it", deaths)
	if alone := deaths - store.Suspected; alone > 0 {
		reason += fmt.Sprintf(", the last %d with no other suspect beside it", alone)
	}
	return w.parkNow(ctx, w.at.Step, "%s: it may be the operation that kills them", reason), false
}

// abandon gives the instance back, and the turn of a suspect.
func (w *work) abandon(end longcall.Ending) longcall.Ending {
	w.instance.release()
	w.instance = nil
	if w.suspected {
		w.suspected = false
		endTurn()
	}
	return end
}

// elsewhere tells of an operation that is not to be had.
func (w *work) elsewhere(show *store.ShowOperation) longcall.Ending {
	switch {
	case !show.Found:
		return longcall.Ending{Outcome: longcall.Elsewhere, Err: ErrUnknownOperation}
	case show.State == store.OperationRunning:
		return longcall.Ending{Outcome: longcall.Elsewhere}
	case show.State == store.OperationParked:
		return longcall.Ending{Outcome: longcall.Failed, Err: &ParkedError{
			OperationID: w.operation, Step: show.Step, Reason: show.Reason, Since: show.Since,
		}}
	case show.State == store.OperationUndone && show.Cancelled:
		return longcall.Ending{Outcome: longcall.Failed, Err: ErrCancelled}
	case show.State == store.OperationUndone && w.cause != nil: // by this very run, whose COMMIT was not acknowledged
		return longcall.Ending{Outcome: longcall.Failed, Err: w.cause}
	case show.State == store.OperationUndone:
		return longcall.Ending{Outcome: longcall.Freed}
	}
	return longcall.Ending{Outcome: longcall.Ended}
}

// unavailable is the ending of a call that could not ask the database.
func (w *work) unavailable(ctx context.Context, err error) longcall.Ending {
	if ctx.Err() != nil {
		return longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)}
	}
	if txn.Transient(err) {
		return longcall.Ending{Outcome: longcall.Undone, Err: err}
	}
	return longcall.Ending{Outcome: longcall.Failed, Err: err}
}

// adopted takes over what is on record.
func (w *work) adopted(t *store.Taken, steps *store.LoadSteps) (err error) {
	w.key = w.call.Key(t.OperationID)
	w.createdAt, w.parent = t.CreatedAt, t.Parent
	w.epoch, w.undoing, w.cancelled, w.accepted, w.leftFrom = t.Epoch, t.Undoing, t.Cancelled, t.Accepted, t.LeftFrom
	w.at = store.At{Step: t.Step, Seq: t.Seq, Tries: t.Tries}
	w.loaded, w.loadedAt = time.Now(), t.LoadedAt
	loaded := w.loaded
	w.elapsed = func() time.Duration { return t.LoadedAt.Sub(t.Since) + time.Since(loaded) }
	w.unrecorded = 0
	w.recorded, w.given = make(map[int]store.Step, len(steps.Steps)), map[int]bool{}
	if w.input, err = open(w.call.Sealer(), t.Input, store.BoundInput(w.operation)); err != nil {
		return err
	}
	for _, s := range steps.Steps {
		if s.Value, err = open(w.call.Sealer(), s.Value, store.BoundStep(w.operation, &s)); err != nil {
			return err
		}
		if s.Outcome == store.StepResolved {
			s.Outcome = store.StepDone
			w.given[s.Seq] = true
		}
		w.recorded[s.Seq] = s
		if s.Outcome == store.StepBegun && s.DueAt.IsZero() {
			w.unrecorded = s.Seq
		}
		if s.Outcome == store.StepBegun || s.Seq == w.at.Seq {
			w.at.Kind = s.Kind
		}
	}
	return nil
}

// letGo lets the next process go on, after pause, and gives the instance back.
func (w *work) letGo(pause time.Duration, end longcall.Ending) longcall.Ending {
	if w.keep(commit{free: true, at: store.At{Pause: pause}}) {
		w.instance.leave(w.operation, false)
		return w.abandon(end)
	}
	ctx, cancel := context.WithTimeout(context.Background(), letGoLimit)
	defer cancel()
	err := w.call.Engine().Query(ctx, store.ReleaseOperation{OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Pause: pause})
	w.instance.leave(w.operation, err != nil)
	return w.abandon(end)
}

// leaving is the error of a caller that leaves an operation to others.
func (w *work) leaving(ctx context.Context) error {
	return fmt.Errorf("operation: its caller has left: %w: %w",
		&idem.InProgressError{Key: "of operation " + w.operation, RetryAfter: time.Second}, context.Cause(ctx))
}

// backoff is the pause before an operation is gone on with whose function has returned an error.
func backoff(attempts int) time.Duration {
	return time.Second << min(attempts, 6)
}

// parkNow stops the operation until a person has seen to it.
func (w *work) parkNow(ctx context.Context, step, reason string, args ...any) longcall.Ending {
	return w.parkAs(ctx, store.ParkOperation{Step: step, Reason: fmt.Sprintf(reason, args...)})
}

func (w *work) parkAs(ctx context.Context, park store.ParkOperation) longcall.Ending {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoLimit)
	defer cancel()
	park.OperationID, park.Epoch, park.Reason = w.operation, w.epoch, storable(park.Reason)
	err := w.call.Engine().Query(ctx, &park)
	w.instance.leave(w.operation, err != nil)
	switch {
	case err != nil:
		return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: err})
	case !park.Parked: // another process has it
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	}
	return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: &ParkedError{OperationID: w.operation, Step: park.Step, Reason: park.Reason}})
}
