package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/txn"
)

// run runs the function until the operation has ended or is released. tx is the transaction that
// has claimed the key, or nil if something is committed already. After a transient database error,
// run claims the operation again and runs the function from the record. The number of such runs is
// limited by idem.WithRetries.
func (w *work) run(ctx context.Context, tx *txn.Tx) bridge.Ending {
	w.checkAfter = map[int]bool{}
	if w.unsent == nil {
		w.unsent = map[int]bool{}
	}
	if w.unrecorded = outcomesInMemory.take(w.operation, w.epoch); w.unrecorded == nil {
		w.unrecorded = map[int]db.Step{}
	}
	for pause, left := txn.RetryPause, w.execution.Retries(); ; left-- {
		op, end := w.runOnce(ctx, tx)
		if op.stopped == nil || op.stopped.kind != stopRerun || w.epoch == 0 {
			return end
		}
		tx = nil
		if op.stopped.uncounted {
			left++
		}
		if left <= 0 || txn.Sleep(ctx, pause.Next()) != nil {
			if ctx.Err() != nil {
				return w.releaseCallerLeft(ctx)
			}
			return w.release(time.Second, failedWith(op.stopped.err), op.stopped.err)
		}
		if end, ok := w.restart(ctx); !ok {
			return end
		}
	}
}

// runOnce runs the function once, and ends the run.
func (w *work) runOnce(ctx context.Context, tx *txn.Tx) (op *Op, end bridge.Ending) {
	op = &Op{work: w, tx: tx, occurrences: map[string]int{}}
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	returned := false
	defer func() {
		if !returned { // the function or an undo has panicked, or has ended its goroutine
			op.over = true
			w.releaseAfterPanic(op)
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

var errPanicked = errors.New("operation: the function has panicked")

// releaseAfterPanic releases an operation whose function or undo has panicked. The panic continues
// afterwards. If the operation was canceled and no undo had begun, the run counts as a failed run
// of a canceled operation. After too many failed runs the operation is undone or parks.
func (w *work) releaseAfterPanic(op *Op) {
	op.rollBack(nil)
	defer func() { // release even if an undo panics below, or op.end expects another run
		if w.instance != nil {
			op.rollBack(nil)
			w.release(backoff(w.journal.runs), bridge.Ending{}, errPanicked)
		}
	}()
	if op.undoing {
		return
	}
	op.stopped = nil
	op.end(idem.Response{}, errPanicked)
}

// restart claims the operation again, and reloads its record. If another process has claimed the
// operation meanwhile, or the caller has left, restart returns the ending of the run and false. If
// the outcome of a call is not recorded yet, restart claims the operation even after the caller has
// left. The release then records the outcome.
func (w *work) restart(ctx context.Context) (bridge.Ending, bool) {
	at, held := w.at, w.turn
	w.turn = nil // leaveUnreleased must not end the turn of a suspect (see takeTurn), which the claim below needs
	w.leaveUnreleased(bridge.Ending{})
	w.turn = held
	claiming := ctx
	if len(w.unrecorded) > 0 {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		claiming = lasting
	}
	t, end := w.claim(claiming, w.execution.Engine())
	ok := t != nil
	if ok {
		end, ok = w.loadClaimed(claiming, t)
	}
	if !ok {
		w.keepInMemory()
		return end, false
	}
	if w.at.Seq == at.Seq {
		w.at.Tries = max(w.at.Tries, at.Tries)
	}
	if ctx.Err() != nil {
		return w.releaseCallerLeft(ctx), false
	}
	return end, true
}

// claimed is an operation that this process has claimed, with the rows of its steps.
type claimed struct {
	db.Taken
	rows []db.Step
}

// claim claims the operation if no other process owns it. Otherwise it releases the
// presence.Instance, and returns nil and an ending that says why.
//
// claim first reserves the operation in this process, so that no other goroutine works on it. A
// suspect is an operation that may have killed the processes that worked on it. In a process one
// suspect at a time has the turn: see takeTurn. Without the turn, the first statement does not
// claim a suspect. If the turn is free, a second statement claims the suspect.
func (w *work) claim(ctx context.Context, engine *txn.Engine) (*claimed, bridge.Ending) {
	instance, err := presence.Adopt(ctx, engine)
	if err != nil {
		w.turn.end()
		return nil, w.queryFailed(ctx, err)
	}
	w.instance = instance
	take := db.TakeOperation{OperationID: w.operation, Owner: instance.Number, Epoch: w.epoch, Alone: w.turn != nil}
	steps := db.LoadSteps{OperationID: w.operation}
	show := db.ShowOperation{OperationID: w.operation}
	reserved := false
	err = instance.WithClaimLock(ctx, func() error {
		reserved = instance.Reserve(w.operation)
		return nil
	})
	switch {
	case err != nil:
		return nil, w.releaseInstance(w.queryFailed(ctx, err))
	case !reserved: // another goroutine of this process works on the operation
		return nil, w.releaseInstance(bridge.Ending{Outcome: bridge.InProgress})
	}
	err = engine.Requery(ctx, &take, &steps, &show)
	if err == nil && show.MayBeSuspect() && !take.Found {
		if t := takeTurn(); t != nil {
			take.Alone = true
			err = engine.Requery(ctx, &take, &steps, &show)
			if err == nil && take.Found && take.Taken.Deaths >= db.Suspected {
				w.holdTurn(t)
			} else {
				t.end()
			}
		}
	}
	switch {
	case err != nil:
		return nil, w.leaveUnreleased(w.queryFailed(ctx, err))
	case !take.Found:
		return nil, w.leave(w.unclaimed(&show))
	}
	return &claimed{take.Taken, steps.Rows}, bridge.Ending{}
}

func (w *work) runClaimed(ctx context.Context, t *claimed) bridge.Ending {
	if end, ok := w.loadClaimed(ctx, t); !ok {
		return end
	}
	return w.run(ctx, nil)
}

// runWith is runClaimed for an operation that no call of Do waits for. The options of the Worker or
// of Resume were checked before.
func (w *work) runWith(ctx context.Context, pool *pgxpool.Pool, opts []idem.Option, t *claimed) bridge.Ending {
	execution, err := idemCalls.Execution(pool, t.Scope, t.Key, t.Hash, t.TTL, opts)
	if err != nil {
		return w.leaveUnreleased(failedWith(err))
	}
	w.execution = execution
	return w.runClaimed(ctx, t)
}

// loadClaimed loads the record of a claimed operation. If the operation cannot be run, it returns
// the ending of the call and false: the record cannot be decrypted, the operation belongs to
// another definition, or too many of its processes have died.
func (w *work) loadClaimed(ctx context.Context, t *claimed) (bridge.Ending, bool) {
	err := w.load(t)
	switch {
	case err != nil:
		return w.release(backoff(t.Attempts), failedWith(err), err), false
	case t.Name != w.definition.name:
		return w.release(0, failedWith(fmt.Errorf("operation: the operation belongs to definition %q, not to %q", t.Name, w.definition.name)), nil), false
	case t.Deaths < w.definition.maxDeaths:
		return bridge.Ending{}, true
	}
	text := fmt.Sprintf("%d processes in a row have died while they worked on the operation", t.Deaths)
	if alone := t.Deaths - db.Suspected; alone > 0 {
		text += fmt.Sprintf(", the last %d without another suspect", alone)
	}
	step, _ := splitUndoName(w.at.Step)
	return w.parkAs(ctx, parked(step, ReasonTooManyDeaths, "%s: the operation may be what kills them; Retry with code that does not, or Cancel", text)), false
}

// load sets the fields of w from the record. If another process has owned the operation since the
// last claim of w, that process may have sent calls. What w knows of calls that were not sent, or
// that have failed, is then no longer valid.
func (w *work) load(t *claimed) (err error) {
	if w.epoch+1 != t.Epoch {
		w.unsent = map[int]bool{}
		dropFailures(w.unrecorded)
	}
	w.key = w.execution.Key(t.OperationID)
	w.createdAt, w.parent, w.epoch = t.CreatedAt, t.Parent, t.Epoch
	w.at = db.At{Step: t.Step, Seq: t.Seq, Tries: t.Tries}
	w.clock = clock{loaded: time.Now(), loadedAt: t.LoadedAt}
	w.begunAt = w.clock.local(t.Since)
	w.rowless = 0
	w.journal = journal{runs: t.Attempts, canceled: t.Canceled}
	if w.input, err = open(w.execution.Sealer(), t.Input, db.BoundInput(w.operation)); err != nil {
		return err
	}
	for i := range t.rows {
		s := &t.rows[i]
		if s.Value, err = open(w.execution.Sealer(), s.Value, db.BoundStep(w.operation, s)); err != nil {
			return err
		}
		if s.Outcome == db.StepBegun && s.DueAt.IsZero() {
			w.rowless = s.Seq
		}
		if s.Outcome == db.StepBegun || s.Seq == w.at.Seq {
			w.at.Kind = s.Kind
		}
		if s.Seq == w.at.Seq {
			w.at.Undos, w.at.Policy = s.Undos, s.Policy
		}
	}
	w.journal = newJournal(t.rows)
	w.journal.runs, w.journal.undoing = t.Attempts, t.Undoing
	w.journal.canceled, w.journal.withoutCalling, w.journal.withoutCode = t.Canceled, t.WithoutCalling, t.Canceled && t.WithoutCode
	return nil
}

// unclaimed returns the ending of a call that could not claim the operation.
func (w *work) unclaimed(show *db.ShowOperation) bridge.Ending {
	switch {
	case !show.Found:
		return bridge.Ending{Outcome: bridge.InProgress, Err: ErrUnknownOperation}
	case show.State == db.OperationRunning:
		return bridge.Ending{Outcome: bridge.InProgress}
	case show.State == db.OperationParked:
		return bridge.Ending{Outcome: bridge.Failed, Err: &ParkedError{
			OperationID: w.operation, Step: show.ReasonStep, Reason: Reason(show.Reason), ReasonText: show.ReasonText, Since: show.Since,
		}}
	case show.State == db.OperationUndone && show.Canceled:
		return failedWith(ErrCanceled)
	case show.State == db.OperationUndone && w.endError != nil: // this process has ended the operation by a COMMIT that was not acknowledged
		return failedWith(w.endError)
	case show.State == db.OperationUndone:
		return bridge.Ending{Outcome: bridge.Undone}
	}
	return bridge.Ending{Outcome: bridge.Finished}
}

func (w *work) queryFailed(ctx context.Context, err error) bridge.Ending {
	switch {
	case ctx.Err() != nil:
		return failedWith(w.callerLeftError(ctx))
	case txn.Transient(err):
		return bridge.Ending{Outcome: bridge.RolledBack, Err: err}
	}
	return failedWith(err)
}
