package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// work is an operation that this process works on.
type work struct {
	definition *definition
	call       longcall.Execution
	instance   *presence.Instance
	logger     *slog.Logger // nil: that of the program
	turn       *turn        // of a suspect

	key       store.Key
	operation string // its id
	parent    string // the operation that awaits it; empty if it is no child
	input     []byte
	ttl       time.Duration
	createdAt time.Time

	// As last committed. The epoch is 0 as long as nothing is.
	epoch      int
	journal    journal
	at         store.At
	elapsed    func() time.Duration // since that step was begun
	clock      clock
	unrecorded int // the position of a call that was begun alone, and so has no row of its own; 0 if there is none

	cause     error              // for which it was undone, and its key freed
	returned  map[int]store.Step // what calls have returned and is not recorded, by their positions: see keep
	unsent    map[int]bool       // calls that may be recorded as begun, and of which this process knows that no attempt was sent
	checked   map[int]bool       // the Tx behind which constraints are checked, because the commit behind them has failed
	suspected bool               // it has the turn of this process
}

func (w *work) log() *slog.Logger {
	if w.logger != nil {
		return w.logger
	}
	return slog.Default()
}

// work runs the function until the operation has ended, or goes on elsewhere. tx is the transaction
// that has claimed the key, if nothing is committed yet.
func (w *work) work(ctx context.Context, tx *txn.Tx) longcall.Ending {
	w.bringBack()
	if w.unsent == nil {
		w.unsent = map[int]bool{}
	}
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
		w.instance.Leave(w.operation, false)
		w.abandon(longcall.Ending{})
		return
	}
	defer func() { // also if an undo panics, too, or is to be tried again
		if w.instance != nil {
			op.close(nil)
			w.release(backoff(w.journal.runs), longcall.Ending{}, errPanicked)
		}
	}()
	switch v := decide(&w.journal, request{seq: op.seq, end: failed}); {
	case op.unwinds:
	case v.do == unwind:
		op.unwind(errPanicked)
	case v.do == park:
		w.parkAs(op.ctx, &stop{reason: v.reason, step: v.at, text: v.text, cause: errPanicked})
	}
}

// endingOf returns how a function has ended that has returned err.
func endingOf(err error) ending {
	if err == nil {
		return answered
	}
	if _, rejected := longcall.RejectionOf(err); rejected || IsFinal(err) {
		return ruled
	}
	return failed
}

// judge returns what follows from the end of the function, or why the run was stopped before that.
func (op *Op) judge(err error) (v verdict, how ending, s *stop) {
	how = endingOf(err)
	if op.grouped && how != failed && op.stopped == nil {
		_ = op.misuse("Go without Wait")
	}
	_ = op.halted()
	switch s := op.stopped; {
	case s != nil && s.why != unwound:
		return v, how, s
	case s != nil: // no step may be left behind
		how = ruled
	}
	return decide(&op.work.journal, request{seq: op.seq, end: how}), how, nil
}

// end says what the run has come to, and records it.
func (op *Op) end(resp idem.Response, err error) longcall.Ending {
	w := op.work
	v, how, s := op.judge(err)
	if s != nil {
		return op.endStopped(s)
	}
	if w.epoch == 0 {
		return w.unheld(longcall.Ending{Outcome: longcall.Unheld, Response: longcall.Response(resp), Err: ofFunction(err)})
	}
	switch {
	case how == failed && op.ctx.Err() != nil:
		return op.endLeft()
	case v.do == unwind:
		return op.unwind(err)
	case v.do == finish:
		return op.finish(longcall.Response(resp))
	case v.do == park:
		_ = op.obey(v)
		op.stopped.cause = err
		return op.endStopped(op.stopped)
	}
	op.close(nil)
	return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: ofFunction(err)}, err)
}

// unheld gives back what an operation that is a transaction like any other has not needed.
func (w *work) unheld(end longcall.Ending) longcall.Ending {
	if w.instance != nil {
		w.instance.Leave(w.operation, false)
		return w.abandon(end)
	}
	return end
}

// endStopped ends a run that was stopped.
func (op *Op) endStopped(s *stop) longcall.Ending {
	w := op.work
	switch {
	case s.why == unknown:
		w.instance.Leave(w.operation, true)
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
		w.instance.Leave(w.operation, false)
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	case suspended:
		w.instance.Leave(w.operation, false)
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	case parked:
		op.close(nil)
		if op.unwinds {
			op.recordDecision()
		}
		w.keep(commit{at: w.at})
		return w.parkAs(op.ctx, s)
	case left:
		return op.endLeft()
	case again:
		op.close(s.err)
		return longcall.Ending{}
	}
	op.close(s.err)
	return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: s.err}, s.err)
}

// endLeft releases an operation whose caller has left.
func (op *Op) endLeft() longcall.Ending {
	op.close(nil)
	return op.work.release(0, longcall.Ending{Outcome: longcall.Failed, Err: op.work.leaving(op.ctx)}, nil)
}

// finish completes the operation: the steps since the last commit, the answer, and the end, in one
// transaction.
func (op *Op) finish(resp longcall.Response) longcall.Ending {
	w := op.work
	complete, err := w.call.Completion(&w.key, resp, store.Completed)
	if err != nil {
		op.close(nil)
		return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: err}, err)
	}
	return op.complete(complete, resp, commit{free: true, state: store.OperationCompleted})
}

// complete makes the last commit of an operation that has an answer.
func (op *Op) complete(complete *store.Complete, resp longcall.Response, c commit) longcall.Ending {
	w := op.work
	told, err := w.tellParent(&childEnd{State: c.state, Response: (*idem.Response)(&resp)})
	if err != nil {
		op.close(nil)
		return w.release(backoff(w.journal.runs), longcall.Ending{Outcome: longcall.Failed, Err: err}, err)
	}
	c.with, c.rouses = append(append(c.with, complete), told...), len(told) > 0
	if err := op.commit(c); err != nil {
		return op.endStopped(op.stopped)
	}
	w.instance.Leave(w.operation, false)
	return w.abandon(longcall.Ending{Outcome: longcall.Recorded, Record: &store.Record{
		SameHash: true, ExecutionID: w.operation, State: complete.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: w.createdAt, CompletedAt: complete.CompletedAt, ExpiresAt: complete.ExpiresAt,
	}})
}

// restart takes the operation up again that this process was working on, and reads its record.
// Another process may have it by now. What a call has returned that is not recorded yet outlasts
// the caller, who may leave meanwhile.
func (w *work) restart(ctx context.Context) (longcall.Ending, bool) {
	at := w.at
	w.instance.Leave(w.operation, true)
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
		return w.release(0, longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)}, nil), false
	}
	return end, true
}

// giveUp ends the call of an operation that cannot go on because of cause.
func (w *work) giveUp(ctx context.Context, cause error) longcall.Ending {
	if ctx.Err() != nil {
		return w.release(0, longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)}, nil)
	}
	return w.release(time.Second, longcall.Ending{Outcome: longcall.Failed, Err: cause}, cause)
}

// release leaves the operation to the next process, after pause, and gives the instance back. err
// is the error of the run, if it has one.
func (w *work) release(pause time.Duration, end longcall.Ending, err error) longcall.Ending {
	var last *lastError
	if err != nil {
		last = &lastError{attempt: w.journal.runs, err: err}
	}
	if w.keep(commit{free: true, at: store.At{Pause: pause}, failure: last}) {
		w.instance.Leave(w.operation, false)
		return w.abandon(end)
	}
	ctx, cancel := context.WithTimeout(context.Background(), letGoLimit)
	defer cancel()
	failed := w.call.Engine().Query(ctx, &store.ReleaseOperation{
		OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Pause: pause, Error: w.stepError(last),
	})
	w.instance.Leave(w.operation, failed != nil)
	return w.abandon(end)
}

// leaving is the error of a caller that leaves an operation to others.
func (w *work) leaving(ctx context.Context) error {
	return fmt.Errorf("operation: its caller has left: %w: %w",
		&idem.InProgressError{Key: "of operation " + w.operation, RetryAfter: time.Second}, endOf(ctx))
}

// backoff is the pause before an operation is gone on with whose function has returned an error.
func backoff(runs int) time.Duration {
	return time.Second << min(runs, 6)
}

// parkAs stops the operation until a person has decided.
func (w *work) parkAs(ctx context.Context, s *stop) longcall.Ending {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoLimit)
	defer cancel()
	p := &store.ParkOperation{OperationID: w.operation, Epoch: w.epoch, Tries: w.at.Tries, Reason: string(s.reason), Step: s.step, Text: storederror.Storable(s.text)}
	if s.cause != nil {
		last := &lastError{step: s.step, attempt: s.tries, err: s.cause}
		if s.reason == ReasonFunctionFailed {
			last.step, last.attempt = "", w.journal.runs
		}
		p.Error = w.stepError(last)
	}
	err := w.call.Engine().Query(ctx, p)
	w.instance.Leave(w.operation, err != nil)
	switch {
	case err != nil:
		return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: err})
	case !p.Parked: // another process has it
		return w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
	}
	return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: &ParkedError{
		OperationID: w.operation, Step: s.step, Reason: s.reason, ReasonText: p.Text, Cause: s.cause,
	}})
}

// abandon gives the instance back, and the turn of a suspect.
func (w *work) abandon(end longcall.Ending) longcall.Ending {
	w.instance.Release()
	w.instance = nil
	if w.suspected {
		w.suspected = false
		w.turn.end()
	}
	return end
}

// takeUp makes the operation this process's own, if it has no owner. Otherwise the ending says why.
func (w *work) takeUp(ctx context.Context) (longcall.Ending, bool) {
	t, end := w.take(ctx, w.call.Engine())
	if t == nil {
		return end, false
	}
	return w.own(ctx, &t.Taken, &t.steps)
}

// takenUp is an operation that was taken up, with its steps.
type takenUp struct {
	store.Taken
	steps store.LoadSteps
}

// take takes the operation up, if it has no owner. Otherwise the ending says why, and nothing is
// held.
func (w *work) take(ctx context.Context, engine *txn.Engine) (*takenUp, longcall.Ending) {
	instance, err := presence.Adopt(ctx, engine)
	if err != nil {
		return nil, w.unavailable(ctx, err)
	}
	w.instance = instance
	take := store.TakeOperation{OperationID: w.operation, Owner: instance.Number, Epoch: w.epoch}
	steps := store.LoadSteps{OperationID: w.operation}
	show := store.ShowOperation{OperationID: w.operation}
	reserved := false
	err = instance.Alone(ctx, func() error {
		reserved = instance.Reserve(w.operation)
		return nil
	})
	switch {
	case err != nil:
		return nil, w.abandon(w.unavailable(ctx, err))
	case !reserved: // another goroutine of this process works on it
		return nil, w.abandon(longcall.Ending{Outcome: longcall.Elsewhere})
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
		instance.Leave(w.operation, true)
		return nil, w.abandon(w.unavailable(ctx, err))
	case !take.Found:
		instance.Leave(w.operation, false)
		return nil, w.abandon(w.elsewhere(&show))
	}
	return &takenUp{take.Taken, steps}, longcall.Ending{}
}

// goOn goes on with an operation that was taken up.
func (w *work) goOn(ctx context.Context, t *takenUp) longcall.Ending {
	if end, ok := w.own(ctx, &t.Taken, &t.steps); !ok {
		return end
	}
	return w.work(ctx, nil)
}

// own takes over the record of an operation that was taken up. It reports whether that may be gone
// on with.
func (w *work) own(ctx context.Context, t *store.Taken, steps *store.LoadSteps) (longcall.Ending, bool) {
	err := w.load(t, steps)
	switch {
	case err != nil:
		return w.release(backoff(t.Attempts), longcall.Ending{Outcome: longcall.Failed, Err: err}, err), false
	case t.Name != w.definition.name:
		return w.release(0, longcall.Ending{Outcome: longcall.Failed, Err: fmt.Errorf("operation: it is an operation %q, not %q", t.Name, w.definition.name)}, nil), false
	case t.Deaths < w.definition.maxDeaths:
		return longcall.Ending{}, true
	}
	text := fmt.Sprintf("%d processes in a row have died while they worked on it", t.Deaths)
	if alone := t.Deaths - store.Suspected; alone > 0 {
		text += fmt.Sprintf(", the last %d with no other suspect beside it", alone)
	}
	step, _ := splitUndoName(w.at.Step)
	return w.parkAs(ctx, &stop{step: step, reason: ReasonTooManyDeaths, text: text + ": it may be the operation that kills them"}), false
}

// load takes over the record.
func (w *work) load(t *store.Taken, steps *store.LoadSteps) (err error) {
	if w.epoch+1 != t.Epoch { // other processes have had it meanwhile
		w.unsent = nil
	}
	w.key = w.call.Key(t.OperationID)
	w.createdAt, w.parent, w.epoch = t.CreatedAt, t.Parent, t.Epoch
	w.at = store.At{Step: t.Step, Seq: t.Seq, Tries: t.Tries}
	w.clock = clock{loaded: time.Now(), loadedAt: t.LoadedAt}
	w.elapsed = w.clock.since(t.Since)
	w.unrecorded = 0
	w.journal = journal{runs: t.Attempts}
	if w.input, err = open(w.call.Sealer(), t.Input, store.BoundInput(w.operation)); err != nil {
		return err
	}
	rows := make([]store.Step, len(steps.Steps))
	for i, s := range steps.Steps {
		if s.Value, err = open(w.call.Sealer(), s.Value, store.BoundStep(w.operation, &s)); err != nil {
			return err
		}
		rows[i] = s
		if s.Outcome == store.StepBegun && s.DueAt.IsZero() {
			w.unrecorded = s.Seq
		}
		if s.Outcome == store.StepBegun || s.Seq == w.at.Seq {
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

// elsewhere is the ending of a call whose operation is not to be had.
func (w *work) elsewhere(show *store.ShowOperation) longcall.Ending {
	switch {
	case !show.Found:
		return longcall.Ending{Outcome: longcall.Elsewhere, Err: ErrUnknownOperation}
	case show.State == store.OperationRunning:
		return longcall.Ending{Outcome: longcall.Elsewhere}
	case show.State == store.OperationParked:
		return longcall.Ending{Outcome: longcall.Failed, Err: &ParkedError{
			OperationID: w.operation, Step: show.ReasonStep, Reason: Reason(show.Reason), ReasonText: show.ReasonText, Since: show.Since,
		}}
	case show.State == store.OperationUndone && show.Canceled:
		return longcall.Ending{Outcome: longcall.Failed, Err: ErrCanceled}
	case show.State == store.OperationUndone && w.cause != nil: // by this very run, whose COMMIT was not acknowledged
		return longcall.Ending{Outcome: longcall.Failed, Err: w.cause}
	case show.State == store.OperationUndone:
		return longcall.Ending{Outcome: longcall.Freed}
	}
	return longcall.Ending{Outcome: longcall.Ended}
}

// unavailable is the ending of a call that could not ask the database.
func (w *work) unavailable(ctx context.Context, err error) longcall.Ending {
	switch {
	case ctx.Err() != nil:
		return longcall.Ending{Outcome: longcall.Failed, Err: w.leaving(ctx)}
	case txn.Transient(err):
		return longcall.Ending{Outcome: longcall.Undone, Err: err}
	}
	return longcall.Ending{Outcome: longcall.Failed, Err: err}
}

// resume takes the operation up, and goes on with it.
func (w *work) resume(ctx context.Context, pool *pgxpool.Pool, opts []idem.Option) longcall.Ending {
	t, end := w.take(ctx, engineOf(pool))
	if t == nil {
		return end
	}
	call, err := door.Settings(pool, t.Scope, t.Key, t.Hash, t.TTL, opts)
	if err != nil { // the options were checked before
		w.instance.Leave(w.operation, true)
		return w.abandon(longcall.Ending{Outcome: longcall.Failed, Err: err})
	}
	w.call = call
	return w.goOn(ctx, t)
}

// An operation that kills its process leaves nothing but its row, with an owner that is gone. So do
// all others that the process was working on. A take-up counts such a death; a commit begins the
// count anew. After store.Suspected deaths an operation is a suspect, of which a process begins one
// at a time: the one that kills dies alone, and the others get on in their turn. A suspect that has
// lived for longer than suspectLimit gives its turn to the next one.

// maxDeaths is how many processes an operation may have had die, by default.
const maxDeaths = 10

// suspectLimit is for how long a suspect keeps others from beginning. One whose other side hangs is
// not the one that kills.
const suspectLimit = 10 * time.Second

// turns has room for one suspect in this process, whatever pools it has: it is the process that
// dies.
var turns = make(chan struct{}, 1)

// turn is the right to work on a suspect.
type turn struct{ once sync.Once }

// takeTurn returns the turn, nil if another suspect has it.
func takeTurn() *turn {
	select {
	case turns <- struct{}{}:
		return &turn{}
	default:
		return nil
	}
}

// end gives the turn to the next suspect.
func (t *turn) end() {
	if t != nil {
		t.once.Do(func() { <-turns })
	}
}

// keepTurn keeps the turn for an operation that was taken up and is a suspect, until it is given
// back with the instance.
func (w *work) keepTurn(t *turn, found bool, taken *store.Taken) {
	if found && taken.Deaths >= store.Suspected {
		w.hold(t)
		return
	}
	t.end()
}

// hold keeps the turn for the operation, for a time.
func (w *work) hold(t *turn) {
	w.suspected, w.turn = true, t
	time.AfterFunc(suspectLimit, t.end)
}
