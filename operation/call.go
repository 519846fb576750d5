package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// Call takes a step outside of Postgres. do runs in no transaction and holds no connection, and
// only after all earlier steps are committed. The key that do gets names this call of this
// operation. It is the same in every attempt and in every process; pass it to the other side.
//
// policy says what happens when the outcome is in doubt, and how the call is retried. After an
// error of do another attempt follows after a backoff, as policy allows. A Final error ends the
// call, and the function of the operation gets it. A backoff of 5 seconds or more frees the caller
// or the worker.
//
// The value is recorded with the next commit, or with the end of the run, however that ends. If the
// process dies before that, the call is in doubt: it is made again, or asked about, or the
// operation parks, as policy says.
//
// Each undo undoes the step: see [Undo].
func Call[T any](op *Op, name string, policy Policy, do func(ctx context.Context, key string) (T, error), undo ...Undo[T]) (T, error) {
	var none T
	s, err := op.enter(callRequest(name, &policy, undo))
	if err != nil {
		return none, err
	}
	return takeStep(op, s.name, func() (value T, err error) {
		var stored []byte
		if s.do == replay {
			stored, err = op.replay(s)
		} else {
			stored, err = op.makeCall(newOutsideCall(op, s, policy, do))
		}
		if value, err = result[T](op, s, stored, err); err == nil {
			planUndos(op, s, undo, func() (T, error) { return decode[T](op.work.definition.codec, stored) })
		}
		return value, err
	})
}

// errNotMade is the outcome of a call that is not made because its operation is being undone. The
// function gets it only if later steps are recorded, because it must reach them.
var errNotMade = Final(ErrNotHappened)

func callRequest[T any](name string, policy *Policy, undo []Undo[T]) request {
	err := policy.check()
	if err == nil {
		err = checkUndos(undo)
	}
	return request{kind: db.CallStep, name: name, policy: policy.stored(), undos: len(undo), invalid: err}
}

func newOutsideCall[T any](op *Op, s *step, policy Policy, do func(ctx context.Context, key string) (T, error)) *outsideCall {
	codec := op.work.definition.codec
	return &outsideCall{
		step: s, policy: policy, label: fmt.Sprintf("step %q", s.name), stepName: s.name, key: derivedKey(op.work.operation, s.kind, s.name),
		call: func(ctx context.Context, key string) ([]byte, error) {
			value, err := do(ctx, key)
			return encodeResult(codec, value, err)
		},
		encode: func(found any) ([]byte, error) {
			value, ok := found.(T)
			if !ok {
				return nil, &unusableError{fmt.Errorf("find returns %T, and the call %T", found, value)}
			}
			return encodeResult(codec, value, nil)
		},
	}
}

// unusableError is the error of a call that has happened, and whose value cannot be recorded.
type unusableError struct{ error }

func encodeResult[T any](codec Codec, value T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	stored, _, err := encode(codec, value)
	if err != nil {
		return nil, &unusableError{err}
	}
	return stored, nil
}

// outsideCall is the call of a Call step, of a parallel call or of an UndoCall, with the state of
// its attempts.
type outsideCall struct {
	step     *step
	policy   Policy
	label    string // names the call in the reason of a parked operation
	stepName string // the step that is the call, or that it undoes
	key      string
	call     func(ctx context.Context, key string) ([]byte, error)
	encode   func(found any) ([]byte, error) // encodes what the find of Asked has returned
	parallel bool                            // it is one of Calls

	tries        int       // attempts so far, in all processes
	doubt        bool      // an attempt may have been sent, and has no answer
	last         error     // of the last attempt
	lastStoredAt time.Time // when storeFailure last stored an error
	dueAt        time.Time // of a parallel call: the end of a long pause
}

// failureOf returns the last error of a call for the record, or nil if there is none.
func (op *Op) failureOf(o *outsideCall) *db.StepError {
	return op.work.stepError(o.stepName, o.tries, o.last)
}

// makeCall brings a call to an outcome. Before the first attempt it commits that the call is begun,
// together with all earlier steps. So a process that finds the record after a crash knows that an
// attempt may have been sent.
func (op *Op) makeCall(o *outsideCall) ([]byte, error) {
	s := o.step
	if begun := op.loadAttempts(o); !begun {
		at := s.position(0)
		at.Tries, at.Undos, at.Policy = o.tries, s.undos, s.policy
		if err := op.commit(commit{at: at}); err != nil {
			return nil, err
		}
	}
	delete(op.work.unsent, s.seq)
	value, err := op.tryUntilSettled(o)
	if op.stopped != nil {
		op.recordNotSent(o)
		return nil, op.stopped
	}
	return value, err
}

// loadAttempts loads the recorded attempts at a call. It reports whether the call is recorded as
// begun. A call that older code made in parallel has a row of its own, with its number of attempts.
func (op *Op) loadAttempts(o *outsideCall) (begun bool) {
	w, s := op.work, o.step
	begun = s.do == settle
	o.doubt = begun && !w.unsent[s.seq]
	if w.at.Seq == s.seq || w.at.Seq == 0 && w.at.Step == s.name {
		o.tries = w.at.Tries
	}
	if s.recorded != nil && (s.recorded.Outcome == db.StepNotSent || !s.recorded.DueAt.IsZero()) {
		if o.tries = triesOf(s.recorded.Value); o.isSpent() && w.at.Tries == 0 { // Retry has set it to 0
			o.tries = 0
		}
		if o.doubt {
			w.begunAt = w.clock.local(s.recorded.DueAt)
		} else {
			op.record(s, db.StepBegun, s.recorded.Value)
			begun = false
		}
	}
	if w.journal.canceled && o.isSpent() { // Cancel allows one more attempt: see decideDoubt
		o.tries = o.policy.attempts - 1
	}
	return begun
}

// tryUntilSettled makes attempts until one settles the call, or no further attempt is allowed.
func (op *Op) tryUntilSettled(o *outsideCall) ([]byte, error) {
	w := op.work
	for {
		if o.isSpent() {
			return op.giveUp(o, fmt.Sprintf("%s did not succeed in %d attempts", o.label, o.tries))
		}
		value, err := op.attempt(o)
		switch limit := w.definition.limit; {
		case op.stopped != nil:
			return nil, op.stopped
		case err == nil, o.isSettledBy(err):
			return op.recordOutcome(o.step, value, err)
		case limit > 0 && o.step.kind == db.CallStep && time.Since(w.begunAt) > limit:
			o.last = err
			return op.giveUp(o, fmt.Sprintf("%s did not succeed within %v of its beginning", o.label, limit))
		}
		o.last = err
		if o.isSpent() { // no pause after the last attempt
			continue
		}
		if op.pauseCall(o) != nil || op.checkCanceled(o) != nil {
			return nil, op.stopped
		}
	}
}

// isSpent reports whether no further attempt is allowed.
func (o *outsideCall) isSpent() bool { return o.policy.attempts > 0 && o.tries >= o.policy.attempts }

// isSettledBy reports whether an error is the outcome of the call. An attempt that was not sent
// does not settle an earlier attempt in doubt.
func (o *outsideCall) isSettledBy(err error) bool {
	m := meaningOf(err)
	return m.final && !(o.doubt && m.unsent)
}

var errCutOff = errors.New("its last attempt was cut off")

// giveUp ends a call that is not tried again. An Asked call in doubt is asked about first. If the
// call has not happened, the function gets the last error as a Final. Otherwise the operation
// parks, because a function that continued could pay twice, or pay for nothing.
func (op *Op) giveUp(o *outsideCall, failed string) ([]byte, error) {
	if o.doubt && o.policy.find != nil {
		value, done, err := op.askOutcome(o)
		switch {
		case op.stopped != nil:
			return nil, op.stopped
		case op.ctx.Err() != nil:
			return nil, op.interrupted()
		case done, err != nil && o.isSettledBy(err):
			return op.recordOutcome(o.step, value, err)
		}
	}
	last := cmp.Or(o.last, errCutOff)
	if !o.doubt && o.step.kind != db.UndoStep {
		return op.recordOutcome(o.step, nil, Final(fmt.Errorf("operation: %s, and has not happened: %w", failed, last)))
	}
	happened := "has not happened"
	if o.doubt {
		happened = "may have happened"
	}
	return nil, op.parkFor(last, o.tries, o.stepName, ReasonAttemptsExhausted, "%s, and %s", failed, happened)
}

// attempt makes a call once. If an earlier attempt is in doubt, attempt settles that one first, and
// may then not need another.
func (op *Op) attempt(o *outsideCall) ([]byte, error) {
	if op.ctx.Err() != nil {
		return nil, op.interrupted()
	}
	if o.doubt && o.policy.once {
		return nil, op.parkInDoubt(o, o.last)
	}
	o.tries++
	op.work.at.Tries = o.tries
	if o.doubt {
		if value, settled, err := op.settleDoubt(o); settled {
			return value, err
		}
	}
	return op.send(o)
}

// parkInDoubt parks the operation at a call that is Once.
func (op *Op) parkInDoubt(o *outsideCall, last error) error {
	return op.parkFor(last, o.tries, o.stepName, ReasonCallInDoubt, "%s may have happened, and must not happen twice: ask the other side, and Resolve the step", o.label)
}

// settleDoubt settles a call in doubt that is Keyed or Asked. It reports false if the call is to be
// made again.
func (op *Op) settleDoubt(o *outsideCall) (value []byte, settled bool, err error) {
	if o.policy.find == nil {
		if time.Since(op.work.begunAt) > o.policy.window {
			return nil, true, op.park(o.stepName, ReasonCallInDoubt, "%s may have happened, and after %v the other side no longer knows its key: ask the other side, and Resolve the step", o.label, o.policy.window)
		}
		return nil, false, nil
	}
	if value, done, err := op.askOutcome(o); done || err != nil {
		return value, true, err
	}
	if j := &op.work.journal; j.canceled && o.step.kind == db.CallStep { // it has not happened, so it is not made
		if !o.parallel && j.recordedAfter(o.step.seq) != nil { // the function goes on to these steps
			return nil, true, errNotMade
		}
		if !o.parallel {
			op.record(o.step, db.StepNotSent, nil)
		}
		return nil, true, op.halt(stopUnwound, nil)
	}
	return nil, false, nil
}

// askOutcome asks the other side for the outcome of a call in doubt. If the call has happened,
// askOutcome returns its value and true. If it returns false and no error, the call has not
// happened, and is no longer in doubt.
func (op *Op) askOutcome(o *outsideCall) (value []byte, done bool, err error) {
	bounded, cancel := o.policy.bounded(op.ctx)
	defer cancel()
	found, done, err := o.policy.find(bounded, o.key)
	if err = o.policy.attemptError(bounded, err); err != nil {
		return nil, false, err
	}
	if !done {
		o.doubt = false
		return nil, false, nil
	}
	value, err = o.encode(found)
	return value, true, op.parkUnusable(o, err)
}

// send makes a call once. An attempt that returned an error without a meaning leaves the call in
// doubt. An attempt that was not sent leaves the doubt as it was.
func (op *Op) send(o *outsideCall) ([]byte, error) {
	began := time.Now()
	value, err := o.try(op.ctx)
	_, happened := err.(*unusableError)
	answer := meaningOf(err)
	unanswered := err != nil && !happened && !answer.final && !answer.unsent
	op.work.observeStep(op.ctx, o.step, began, err, unanswered)
	o.doubt = o.doubt || unanswered
	switch {
	case err == nil, answer.final:
		return value, err
	case op.parkUnusable(o, err) != err:
		return nil, op.stopped
	case o.doubt && o.policy.once:
		return nil, op.parkInDoubt(o, err)
	case op.ctx.Err() != nil:
		return nil, op.interrupted()
	}
	return nil, err
}

// try runs the function of a call, with the attempt timeout and the heartbeat of its policy.
func (o *outsideCall) try(ctx context.Context) ([]byte, error) {
	bounded, cancel := o.policy.watched(ctx)
	defer cancel()
	value, err := o.call(bounded, o.key)
	return value, o.policy.attemptError(bounded, err)
}

// attemptError returns the error of an attempt. ctx is the context of the attempt.
//
// After the end of the context, a Final error counts as Unknown: the program may have made it from
// the error of the context, and the text alone does not show whether the other side has answered.
// Final(NotSent) stays, unless it wraps the error of the context. An error without a meaning also
// counts as Unknown if the context ended because no beat came; it becomes an ErrNoBeat.
func (p *Policy) attemptError(ctx context.Context, err error) error {
	_, happened := err.(*unusableError)
	if err == nil || happened || ctx.Err() == nil {
		return err
	}
	m := meaningOf(err)
	if m.final && (!m.unsent || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		err, m = Unknown(errors.New(storederror.Text(err))), meaning{unknown: true}
	}
	if !m.final && !m.unsent && errors.Is(context.Cause(ctx), ErrNoBeat) {
		return Unknown(fmt.Errorf("%w: none for %v: %w", ErrNoBeat, p.heartbeat, err))
	}
	return err
}

// parkUnusable parks the operation if a call has happened and its value cannot be recorded. It
// returns any other error as it is.
func (op *Op) parkUnusable(o *outsideCall, err error) error {
	if u, ok := err.(*unusableError); ok {
		return op.parkFor(u.error, o.tries, o.stepName, ReasonValueUnreadable, "%s has happened, and its value cannot be recorded", o.label)
	}
	return err
}

// recordOutcome adds the outcome of a call to the next commit, and returns it as the function sees
// it. It also keeps the outcome in work.unrecorded, in case this run never commits. An undo that
// has failed is not recorded: the operation parks, and the undo is still to run.
func (op *Op) recordOutcome(s *step, value []byte, err error) ([]byte, error) {
	outcome := db.StepDone
	switch {
	case err != nil && s.kind == db.UndoStep:
		return nil, err
	case err != nil:
		outcome = db.StepFailed
		value, err = op.failure(err)
	}
	op.work.unrecorded[s.seq] = op.record(s, outcome, value).Step
	return value, err
}

// pauseCall takes the pause between two attempts. A short pause is spent in memory. A long pause
// frees the caller or the worker: the operation is released, and due after the pause. A suspect is
// released after any pause: it has survived an attempt, and the commit that records this resets its
// deaths. A long pause of a parallel call ends its attempts in this run, and the operation is
// released when the other calls have ended, too.
func (op *Op) pauseCall(o *outsideCall) error {
	d := o.policy.backoff(o.tries)
	op.work.warn(op.ctx, o)
	if d < longPause && op.work.turn == nil {
		op.storeFailure(o, d)
		if txn.Sleep(op.ctx, d) != nil {
			return op.interrupted()
		}
		return nil
	}
	if o.parallel {
		op.storeFailure(o, d)
		o.dueAt = time.Now().Add(d)
		return op.halt(stopSuspended, nil)
	}
	return op.suspend(commit{at: o.positionBetween(d), failure: op.failureOf(o)})
}

// storePause is how often storeFailure stores an error of a call at most.
const storePause = time.Second

// storeFailure stores the error of an attempt, which Show returns. It ignores its own failure.
func (op *Op) storeFailure(o *outsideCall, pause time.Duration) {
	if time.Since(o.lastStoredAt) < storePause {
		return
	}
	o.lastStoredAt = time.Now()
	w := op.work
	note := db.NoteFailure{OperationID: w.operation, Epoch: w.epoch, Tries: o.tries, Pause: pause, Error: *op.failureOf(o)}
	_ = w.execution.Engine().Query(op.ctx, &note)
}

// warn logs the error of an attempt if its number is a power of two.
func (w *work) warn(ctx context.Context, o *outsideCall) {
	if o.tries&(o.tries-1) == 0 {
		cmp.Or(w.logger, slog.Default()).WarnContext(ctx, "operation: an attempt has failed", "operation", w.operation, "name", w.definition.name,
			"step", o.stepName, "kind", string(o.step.kind), "attempt", o.tries, "error", w.textOf(o.last))
	}
}

// checkCanceled asks the database after a pause whether the operation was canceled, or canceled
// with other options. If so, it stops the run, and the next run sees the Cancel. While the database
// cannot answer, no attempt is made. Undos are made in any case.
func (op *Op) checkCanceled(o *outsideCall) error {
	if o.step.kind == db.UndoStep {
		return nil
	}
	j := &op.work.journal
	asked := db.IsCanceled{OperationID: op.work.operation}
	for pause := txn.RetryPause; ; {
		err := op.work.execution.Engine().Query(op.ctx, &asked)
		switch {
		case err == nil && (asked.Canceled != j.canceled || asked.WithoutCalling != j.withoutCalling):
			return op.rerunUncounted(errCancelNoticed)
		case err == nil:
			return nil
		case op.ctx.Err() == nil && !txn.Transient(err):
			return op.failed(err)
		case txn.Sleep(op.ctx, pause.Next()) != nil:
			return op.interrupted()
		}
	}
}

// positionBetween returns the position of the operation between two attempts. A call that is not in
// doubt is recorded as not begun: the next process commits its beginning anew.
func (o *outsideCall) positionBetween(pause time.Duration) db.At {
	at := db.At{Step: o.step.name, Pause: pause, Tries: o.tries}
	if o.doubt {
		at.Kind, at.Seq, at.Undos, at.Policy = o.step.kind, o.step.seq, o.step.undos, o.step.policy
	}
	return at
}

// recordNotSent records that no attempt of a call was sent, for a run that stops. Without this
// record the call would be in doubt for the next process, and a call that is Once would park.
func (op *Op) recordNotSent(o *outsideCall) {
	if s := op.stopped; (s.kind == stopCallerLeft || s.kind == stopRerun) && len(op.pending) == 0 && !o.doubt {
		op.commitStopped(commit{always: true, at: o.positionBetween(0), failure: op.failureOf(o)})
	}
}

// commitStopped commits for a run that has stopped, even if its context has ended. It ignores a
// failure, and the run stays stopped as before.
func (op *Op) commitStopped(c commit) {
	running, stopped := op.ctx, op.stopped
	ctx, cancel := context.WithTimeout(context.WithoutCancel(running), releaseLimit)
	defer cancel()
	op.rollBack(nil)
	op.ctx, op.stopped = ctx, nil
	_ = op.commit(c)
	op.ctx, op.stopped = running, stopped
}

// triesValue returns the number of attempts at a parallel call as the value of its row.
func triesValue(tries int) []byte {
	if tries == 0 {
		return nil
	}
	return strconv.AppendInt(nil, int64(tries), 10)
}

func triesOf(value []byte) int {
	tries, _ := strconv.Atoi(string(value))
	return tries
}
