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

// Call takes a step outside of Postgres, such as a payment. Call calls the function do after all
// earlier steps are committed, in no transaction and without a connection. The argument key
// identifies this call of this operation, and is the same in every attempt and in every process.
// Pass it to the other system.
//
// The policy says what happens when the outcome of an attempt is in doubt, and how the call is
// retried. If do returns an error, Call waits for a backoff and tries again, as the policy allows.
// A Final error ends the call at once, and Call returns it. For a backoff of 5 seconds or more the
// operation is released, and occupies no worker.
//
// The value that do returns is recorded with the next commit. If the run ends without another
// commit, the value is recorded when the run ends. If the process dies before the value is
// recorded, the call is in doubt. The policy then says whether the call is made again, the other
// system is asked, or the operation parks.
//
// The functions in undo reverse the step if the operation is undone: see [Undo].
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

// errNotMade is the outcome of a call that is not made because its operation is being undone. If
// later steps are recorded, the function gets this error and continues to those steps. Otherwise
// the run stops at the call.
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

// unusableError reports that a call has happened, but its value cannot be recorded.
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

// outsideCall is one call of another system, with the state of its attempts. Call, Go and UndoCall
// make such calls.
type outsideCall struct {
	step     *step
	policy   Policy
	label    string // a description of the call for the reason of a parked operation
	stepName string // the name of the call's step; for an UndoCall, of the step that is undone
	key      string
	call     func(ctx context.Context, key string) ([]byte, error)
	encode   func(found any) ([]byte, error) // encodes the value that the find function of Asked has returned
	parallel bool                            // the call is one of a group of Calls

	tries        int       // attempts so far, in all processes
	doubt        bool      // an attempt may have been sent, and its outcome is not known
	last         error     // the error of the last attempt
	lastStoredAt time.Time // when storeFailure last stored an error
	dueAt        time.Time // for a parallel call: when a backoff of longPause or more ends
}

// failureOf returns the last error of the call in its stored form, or nil if there is none.
func (op *Op) failureOf(o *outsideCall) *db.StepError {
	return op.work.stepError(o.stepName, o.tries, o.last)
}

// makeCall makes attempts until the call has an outcome or the run stops. Before the first attempt
// it commits all earlier steps and the fact that the call has begun. If the process dies, the next
// process then knows from the record that an attempt may have been sent.
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

// loadAttempts sets the number of attempts from the record, and whether the call is in doubt. It
// reports whether the record says that the call has begun. The number of attempts is in the row of
// the operation. If an older version of the code made the call in a group of Calls, the number is
// in the row of the step.
func (op *Op) loadAttempts(o *outsideCall) (begun bool) {
	w, s := op.work, o.step
	begun = s.do == settle
	o.doubt = begun && !w.unsent[s.seq]
	if w.at.Seq == s.seq || w.at.Seq == 0 && w.at.Step == s.name {
		o.tries = w.at.Tries
	}
	if s.recorded != nil && (s.recorded.Outcome == db.StepNotSent || !s.recorded.DueAt.IsZero()) {
		if o.tries = triesOf(s.recorded.Value); o.isSpent() && w.at.Tries == 0 { // Retry has set Tries to 0
			o.tries = 0
		}
		if o.doubt {
			w.begunAt = w.clock.local(s.recorded.DueAt)
		} else {
			op.record(s, db.StepBegun, s.recorded.Value)
			begun = false
		}
	}
	if w.journal.canceled && o.isSpent() { // a canceled operation gets one more attempt to settle the call
		o.tries = o.policy.attempts - 1
	}
	return begun
}

// tryUntilSettled makes attempts until the call has an outcome, no further attempt is allowed, or
// the run stops.
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

// isSpent reports whether the call has used up the attempts that its policy allows.
func (o *outsideCall) isSpent() bool { return o.policy.attempts > 0 && o.tries >= o.policy.attempts }

// isSettledBy reports whether err is the outcome of the call. A Final(NotSent) error is not the
// outcome while an earlier attempt is in doubt.
func (o *outsideCall) isSettledBy(err error) bool {
	m := meaningOf(err)
	return m.final && !(o.doubt && m.unsent)
}

var errCutOff = errors.New("its last attempt was cut off")

// giveUp ends a call that is not tried again. If the call is in doubt and its policy is Asked,
// giveUp first asks the other system. If the call has not happened, the function gets the last
// error as a Final error. If the call is still in doubt, the operation parks, because a function
// that continued could pay twice, or pay for nothing. For an undo the operation always parks.
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

// attempt makes one attempt at the call. After an earlier attempt in doubt, a call with the policy
// Once parks the operation, and any other call goes through settleDoubt first. attempt then sends
// the call, unless settleDoubt returns the result of the attempt, or the call is not in doubt and
// the operation was canceled.
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
	if !o.doubt && op.work.journal.canceled && o.step.kind == db.CallStep {
		return nil, op.leaveOut(o)
	}
	return op.send(o)
}

// leaveOut ends a call that has not happened, because a canceled operation does not make it. It
// stops the run, unless the function must reach steps that are recorded after the call.
func (op *Op) leaveOut(o *outsideCall) error {
	switch {
	case o.parallel: // see collect
	case op.work.journal.recordedAfter(o.step.seq) != nil:
		return errNotMade
	default:
		op.record(o.step, db.StepNotSent, nil)
	}
	return op.halt(stopUnwound, nil)
}

// parkInDoubt parks the operation because a call with the policy Once is in doubt.
func (op *Op) parkInDoubt(o *outsideCall, last error) error {
	return op.parkFor(last, o.tries, o.stepName, ReasonCallInDoubt, "%s may have happened, and must not happen twice: ask the other side, and Resolve the step", o.label)
}

// settleDoubt tries to settle a call in doubt whose policy is Keyed or Asked. settled is false if
// the caller has to send the call again. Otherwise value and err are the result of the attempt.
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
	return nil, false, nil
}

// askOutcome asks the other system for the outcome of a call in doubt. If the call has happened,
// askOutcome returns its value and true. If askOutcome returns false and no error, the call has not
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

// send calls the function of the call once. An error that is neither Final nor NotSent leaves the
// call in doubt. A NotSent error does not change whether the call is in doubt.
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

// try runs the function of the call, with the attempt timeout and the heartbeat of its policy.
func (o *outsideCall) try(ctx context.Context) ([]byte, error) {
	bounded, cancel := o.policy.watched(ctx)
	defer cancel()
	value, err := o.call(bounded, o.key)
	return value, o.policy.attemptError(bounded, err)
}

// attemptError returns the error of an attempt whose function has returned err. ctx is the context
// of the attempt.
//
// If ctx has ended, a Final error becomes Unknown. The program may have made the Final error from
// the error of ctx, and then the other system has not answered. A Final(NotSent) error stays as it
// is, unless it wraps the error of ctx. If ctx ended because Beat was not called in time, any error
// that is not NotSent becomes an Unknown error that wraps ErrNoBeat.
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

// parkUnusable parks the operation if err is an unusableError: the call has happened, but its value
// cannot be recorded. parkUnusable returns any other err unchanged.
func (op *Op) parkUnusable(o *outsideCall, err error) error {
	if u, ok := err.(*unusableError); ok {
		return op.parkFor(u.error, o.tries, o.stepName, ReasonValueUnreadable, "%s has happened, and its value cannot be recorded", o.label)
	}
	return err
}

// recordOutcome adds the outcome of a call to the next commit. It returns the outcome in the form
// that the function of the operation sees. It also keeps the outcome in work.unrecorded, in case
// this run never commits. The failure of an undo is not recorded: the operation parks, and the undo
// can be made again.
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

// pauseCall waits for the backoff between two attempts. If the backoff is shorter than longPause,
// the process sleeps. Otherwise the operation is released, and is due after the backoff. A suspect
// is an operation whose processes have died several times. It is released at every backoff: the
// attempt did not kill the process, and the commit of the release resets the count of deaths. If a
// parallel call has a long backoff, only this call makes no more attempts in this run. The
// operation is released when the other calls have ended.
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

// storePause is the minimum time between two errors of a call that storeFailure stores.
const storePause = time.Second

// storeFailure stores the error of the last attempt, which Show then returns. If the statement
// fails, the run continues without the stored error.
func (op *Op) storeFailure(o *outsideCall, pause time.Duration) {
	if time.Since(o.lastStoredAt) < storePause {
		return
	}
	o.lastStoredAt = time.Now()
	w := op.work
	note := db.NoteFailure{OperationID: w.operation, Epoch: w.epoch, Tries: o.tries, Pause: pause, Error: *op.failureOf(o)}
	_ = w.execution.Engine().Query(op.ctx, &note)
}

// warn logs the error of the last attempt if the number of the attempt is a power of two.
func (w *work) warn(ctx context.Context, o *outsideCall) {
	if o.tries&(o.tries-1) == 0 {
		cmp.Or(w.logger, slog.Default()).WarnContext(ctx, "operation: an attempt has failed", "operation", w.operation, "name", w.definition.name,
			"step", o.stepName, "kind", string(o.step.kind), "attempt", o.tries, "error", w.textOf(o.last))
	}
}

// checkCanceled reads from the database whether the operation was canceled during the pause, or
// canceled again with other options. If it was, checkCanceled stops the run, and the next run
// follows the Cancel; an undo goes on. It also stops the run if another process has claimed the
// operation. While the database is unavailable, checkCanceled waits, and no attempt is made.
func (op *Op) checkCanceled(o *outsideCall) error {
	j, isUndo := &op.work.journal, o.step.kind == db.UndoStep
	asked := db.IsCanceled{OperationID: op.work.operation}
	for pause := txn.RetryPause; ; {
		err := op.work.execution.Engine().Query(op.ctx, &asked)
		switch {
		case err == nil && asked.Epoch != op.work.epoch:
			return op.halt(stopLost, nil)
		case err == nil && !isUndo && (asked.Canceled != j.canceled || asked.WithoutCalling != j.withoutCalling):
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

// positionBetween returns what the row of the operation stores between two attempts at the call. If
// the call is not in doubt, the row does not say that the call has begun, and the next process
// commits the beginning of the call again.
func (o *outsideCall) positionBetween(pause time.Duration) db.At {
	at := db.At{Step: o.step.name, Pause: pause, Tries: o.tries}
	if o.doubt {
		at.Kind, at.Seq, at.Undos, at.Policy = o.step.kind, o.step.seq, o.step.undos, o.step.policy
	}
	return at
}

// After the run has stopped, recordNotSent commits that the call is not in doubt. Without this
// commit the call would be in doubt for the next process, and the operation would park if the
// policy is Once.
func (op *Op) recordNotSent(o *outsideCall) {
	if s := op.stopped; (s.kind == stopCallerLeft || s.kind == stopRerun) && len(op.pending) == 0 && !o.doubt {
		op.commitStopped(commit{always: true, at: o.positionBetween(0), failure: op.failureOf(o)})
	}
}

// commitStopped commits c after the run has stopped, even if the context of the run has ended. It
// ignores an error of the commit, and the run stays stopped for the same reason as before.
func (op *Op) commitStopped(c commit) {
	running, stopped := op.ctx, op.stopped
	ctx, cancel := context.WithTimeout(context.WithoutCancel(running), releaseLimit)
	defer cancel()
	op.rollBack(nil)
	op.ctx, op.stopped = ctx, nil
	_ = op.commit(c)
	op.ctx, op.stopped = running, stopped
}

// triesValue encodes the number of attempts at a parallel call. The row of the call stores the
// number as its value.
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
