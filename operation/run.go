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

// work runs the function until the operation has ended, or is left to another process. tx is the
// transaction that has claimed the key, if nothing is committed yet.
func (w *work) work(ctx context.Context, tx *txn.Tx) bridge.Ending {
	w.takeFromMemory()
	if w.unsent == nil {
		w.unsent = map[int]bool{}
	}
	for pause, left := txn.RetryPause, w.call.Retries(); ; left-- {
		op, end := w.run(ctx, tx)
		if op.stopped == nil || op.stopped.why != stopAgain || w.epoch == 0 {
			return end
		}
		tx = nil
		cause := op.stopped.err
		if op.stopped.free {
			left++
		}
		if left <= 0 || txn.Sleep(ctx, pause.Next()) != nil {
			return w.releaseAfterRetries(ctx, cause)
		}
		if end, ok := w.restart(ctx); !ok {
			return end
		}
	}
}

// run runs the function once.
func (w *work) run(ctx context.Context, tx *txn.Tx) (op *Op, end bridge.Ending) {
	op = &Op{work: w, tx: tx}
	op.ctx, op.cancel = context.WithCancelCause(ctx)
	defer op.cancel(nil)
	returned := false
	defer func() {
		if !returned { // the function, or an undo, has panicked, or ended its goroutine
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

var errPanicked = errors.New("operation: its function has panicked")

// dropped releases an operation whose function, or whose undo, has panicked, or parks it if it was
// canceled and has failed often enough.
func (w *work) dropped(op *Op) {
	op.close(nil)
	switch {
	case w.instance == nil:
		return
	case w.epoch == 0:
		w.leave(bridge.Ending{})
		return
	}
	defer func() { // also if an undo panics, too, or is to be tried again
		if w.instance != nil {
			op.close(nil)
			w.release(backoff(w.journal.runs), bridge.Ending{}, errPanicked)
		}
	}()
	switch v := decide(&w.journal, request{seq: op.seq, end: endFailed}); {
	case op.unwinds:
	case v.do == unwind:
		op.unwind(errPanicked)
	case v.do == park:
		w.parkAs(op.ctx, &stop{reason: v.reason, step: v.at, text: v.text, cause: errPanicked})
	}
}

// restart claims the operation again, and reads its record. Another process may have claimed it
// meanwhile. While the outcome of a call is not recorded, restart outlasts the context of the
// caller.
func (w *work) restart(ctx context.Context) (bridge.Ending, bool) {
	at := w.at
	w.leaveUnreleased(bridge.Ending{})
	taking := ctx
	if len(w.outcomes) > 0 {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		taking = lasting
	}
	end, ok := w.takeOver(taking)
	switch {
	case !ok:
		w.keepInMemory()
		return end, false
	case w.at.Seq == at.Seq:
		w.at.Tries = max(w.at.Tries, at.Tries)
	}
	if ctx.Err() != nil {
		return w.release(0, failedWith(w.leaving(ctx)), nil), false
	}
	return end, true
}

// takeOver claims the operation if it has no owner, and loads it. Otherwise the ending says why.
func (w *work) takeOver(ctx context.Context) (bridge.Ending, bool) {
	t, end := w.take(ctx, w.call.Engine())
	if t == nil {
		return end, false
	}
	return w.loadTaken(ctx, &t.Taken, &t.steps)
}

// takenOver is a claimed operation with its steps.
type takenOver struct {
	db.Taken
	steps db.LoadSteps
}

// take claims the operation if it has no owner. Otherwise the ending says why, and the instance is
// released.
func (w *work) take(ctx context.Context, engine *txn.Engine) (*takenOver, bridge.Ending) {
	instance, err := presence.Adopt(ctx, engine)
	if err != nil {
		return nil, w.unavailable(ctx, err)
	}
	w.instance = instance
	take := db.TakeOperation{OperationID: w.operation, Owner: instance.Number, Epoch: w.epoch}
	steps := db.LoadSteps{OperationID: w.operation}
	show := db.ShowOperation{OperationID: w.operation}
	reserved := false
	err = instance.WithClaimLock(ctx, func() error {
		reserved = instance.Reserve(w.operation)
		return nil
	})
	switch {
	case err != nil:
		return nil, w.releaseInstance(w.unavailable(ctx, err))
	case !reserved: // another goroutine of this process works on it
		return nil, w.releaseInstance(bridge.Ending{Outcome: bridge.InProgress})
	}
	err = engine.Requery(ctx, &take, &steps, &show)
	if err == nil && show.MayBeSuspect() && !take.Found {
		if t := takeTurn(); t != nil {
			take.Alone = true
			defer func() { w.keepTurn(t, take.Found, &take.Taken) }()
			err = engine.Requery(ctx, &take, &steps, &show)
		}
	}
	switch {
	case err != nil:
		take.Found = false // the turn is not kept for what is not worked on
		return nil, w.leaveUnreleased(w.unavailable(ctx, err))
	case !take.Found:
		return nil, w.leave(w.elsewhere(&show))
	}
	return &takenOver{take.Taken, steps}, bridge.Ending{}
}

// resumeTaken resumes a claimed operation.
func (w *work) resumeTaken(ctx context.Context, t *takenOver) bridge.Ending {
	if end, ok := w.loadTaken(ctx, &t.Taken, &t.steps); !ok {
		return end
	}
	return w.work(ctx, nil)
}

// loadTaken loads the record of a claimed operation. It reports whether the operation may be run.
func (w *work) loadTaken(ctx context.Context, t *db.Taken, steps *db.LoadSteps) (bridge.Ending, bool) {
	err := w.load(t, steps)
	switch {
	case err != nil:
		return w.release(backoff(t.Attempts), failedWith(err), err), false
	case t.Name != w.definition.name:
		return w.release(0, failedWith(fmt.Errorf("operation: it is an operation %q, not %q", t.Name, w.definition.name)), nil), false
	case t.Deaths < w.definition.maxDeaths:
		return bridge.Ending{}, true
	}
	text := fmt.Sprintf("%d processes in a row have died while they worked on it", t.Deaths)
	if alone := t.Deaths - db.Suspected; alone > 0 {
		text += fmt.Sprintf(", the last %d with no other suspect beside it", alone)
	}
	step, _ := splitUndoName(w.at.Step)
	return w.parkAs(ctx, &stop{step: step, reason: ReasonTooManyDeaths, text: text + ": it may be the operation that kills them"}), false
}

// load sets the fields of w from the record.
func (w *work) load(t *db.Taken, steps *db.LoadSteps) (err error) {
	if w.epoch+1 != t.Epoch { // other processes have had it meanwhile
		w.unsent = nil
	}
	w.key = w.call.Key(t.OperationID)
	w.createdAt, w.parent, w.epoch = t.CreatedAt, t.Parent, t.Epoch
	w.at = db.At{Step: t.Step, Seq: t.Seq, Tries: t.Tries}
	w.clock = clock{loaded: time.Now(), loadedAt: t.LoadedAt}
	w.elapsed = w.clock.since(t.Since)
	w.rowless = 0
	w.journal = journal{runs: t.Attempts}
	if w.input, err = open(w.call.Sealer(), t.Input, db.BoundInput(w.operation)); err != nil {
		return err
	}
	rows := make([]db.Step, len(steps.Rows))
	for i, s := range steps.Rows {
		if s.Value, err = open(w.call.Sealer(), s.Value, db.BoundStep(w.operation, &s)); err != nil {
			return err
		}
		rows[i] = s
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
	w.journal = newJournal(rows)
	w.journal.runs, w.journal.undoing = t.Attempts, t.Undoing
	w.journal.canceled, w.journal.withoutCalling, w.journal.withoutCode = t.Canceled, t.WithoutCalling, t.Canceled && t.WithoutCode
	return nil
}

// elsewhere returns the ending of a call that could not claim the operation.
func (w *work) elsewhere(show *db.ShowOperation) bridge.Ending {
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
	case show.State == db.OperationUndone && w.cause != nil: // by this very run, whose COMMIT was not acknowledged
		return failedWith(w.cause)
	case show.State == db.OperationUndone:
		return bridge.Ending{Outcome: bridge.Undone}
	}
	return bridge.Ending{Outcome: bridge.Finished}
}

// unavailable returns the ending of a call whose query failed.
func (w *work) unavailable(ctx context.Context, err error) bridge.Ending {
	switch {
	case ctx.Err() != nil:
		return failedWith(w.leaving(ctx))
	case txn.Transient(err):
		return bridge.Ending{Outcome: bridge.RolledBack, Err: err}
	}
	return failedWith(err)
}

// resume claims and runs the operation.
func (w *work) resume(ctx context.Context, pool *pgxpool.Pool, opts []idem.Option) bridge.Ending {
	t, end := w.take(ctx, engineOf(pool))
	if t == nil {
		return end
	}
	call, err := idemCalls.Execution(pool, t.Scope, t.Key, t.Hash, t.TTL, opts)
	if err != nil { // the options were checked before
		return w.leaveUnreleased(failedWith(err))
	}
	w.call = call
	return w.resumeTaken(ctx, t)
}
