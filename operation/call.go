package operation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/storederror"
	"github.com/idem-go/idem/internal/txn"
)

// Call takes a step outside of Postgres. do runs in no transaction and holds no connection, and
// never before all that came earlier is committed. The key that do gets names this call of this
// operation: it is the same in every attempt and in every process, and goes to the other side.
//
// policy says what happens when the outcome is in doubt, and how the call is retried. An error of
// do is followed by another attempt after a backoff, as policy allows. A Final error ends the call,
// and the function of the operation gets it. A backoff of more than some seconds frees the caller
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
	return inStep(op, s.name, func() (T, error) {
		var stored []byte
		var err error
		if s.do == replay {
			stored, err = op.replay(s)
		} else {
			stored, err = op.callOut(outsideOf(op, s, policy, do))
		}
		return planned(op, s, stored, err, undo)
	})
}

// callRequest returns what is asked for by a call.
func callRequest[T any](name string, policy *Policy, undo []Undo[T]) request {
	err := policy.check()
	if err == nil {
		err = checkUndos(undo)
	}
	return request{kind: db.CallStep, name: name, policy: policy.stored(), undos: len(undo), invalid: err}
}

// planned decodes the value of a call, and keeps its undos.
func planned[T any](op *Op, s *step, stored []byte, err error, undo []Undo[T]) (T, error) {
	value, err := result[T](op, s, stored, err)
	if err != nil {
		return value, err
	}
	return value, plan(op, s, undo, func() (T, error) { return decode[T](op.work.definition.codec, stored) })
}

func outsideOf[T any](op *Op, s *step, policy Policy, do func(ctx context.Context, key string) (T, error)) *outside {
	codec := op.work.definition.codec
	return &outside{
		step: s, policy: policy, what: fmt.Sprintf("step %q", s.name), of: s.name, key: derivedKey(op.work.operation, s.kind, s.name),
		call: func(ctx context.Context, key string) ([]byte, error) {
			value, err := do(ctx, key)
			return encoded(codec, value, err)
		},
		encode: func(found any) ([]byte, error) {
			value, ok := found.(T)
			if !ok {
				return nil, &unusable{fmt.Errorf("find returns %T, and the call %T", found, value)}
			}
			return encoded(codec, value, nil)
		},
	}
}

// unusable is the error of a call that has happened, and whose value cannot be recorded.
type unusable struct{ error }

func encoded[T any](codec Codec, value T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	stored, _, err := encode(codec, value)
	if err != nil {
		return nil, &unusable{err}
	}
	return stored, nil
}

// outside is a call that is made, or the call of an undo.
type outside struct {
	step          *step
	policy        Policy
	what          string // it is, for a person
	of            string // the step that it is, or undoes
	tries         int
	doubt         bool // an attempt may have been sent, and has no answer
	key           string
	call          func(ctx context.Context, key string) ([]byte, error)
	encode        func(found any) ([]byte, error)
	pauseTogether func(d time.Duration) error // a long pause, of a call that is made together with others

	last   error     // of the last attempt
	stored time.Time // when an error was last stored
}

// failure returns the last error, nil if there is none.
func (o *outside) failure() *lastError {
	if o.last == nil {
		return nil
	}
	return &lastError{step: o.of, attempt: o.tries, err: o.last}
}

// callOut brings a call to an outcome.
func (op *Op) callOut(o *outside) ([]byte, error) {
	s := o.step
	if begun := op.recallAttempts(o); !begun {
		at := db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Tries: o.tries, Undos: s.undos, Policy: s.policy}
		if err := op.commit(commit{at: at}); err != nil {
			return nil, err
		}
	}
	value, err := op.tryOut(o)
	if op.stopped != nil {
		op.withdraw(o)
		return nil, op.stopped
	}
	return value, err
}

// recallAttempts loads the recorded attempts at a call. It reports whether the call is recorded as
// begun.
func (op *Op) recallAttempts(o *outside) (begun bool) {
	w, s := op.work, o.step
	begun = s.do == settle
	o.doubt = begun && !w.unsent[s.seq]
	if w.at.Seq == s.seq || w.at.Seq == 0 && w.at.Step == s.name {
		o.tries = w.at.Tries
	}
	if s.recorded != nil && (s.recorded.Outcome == db.StepNotSent || !s.recorded.DueAt.IsZero()) { // older code has made it together with others
		o.tries = triesOf(s.recorded.Value)
		if o.doubt {
			w.elapsed = w.clock.since(s.recorded.DueAt)
		} else {
			op.record(s, db.StepBegun, s.recorded.Value)
			begun = false
		}
	}
	if w.journal.canceled && o.isSpent() { // one attempt more: see decide
		o.tries = o.policy.attempts - 1
	}
	return begun
}

// tryOut makes attempts until one settles the call, or no further attempt is allowed.
func (op *Op) tryOut(o *outside) ([]byte, error) {
	w := op.work
	for {
		if o.isSpent() {
			return op.runOut(o, fmt.Sprintf("%s did not succeed in %d attempts", o.what, o.tries))
		}
		value, err := op.attempt(o)
		switch limit := w.definition.limit; {
		case op.stopped != nil:
			return nil, op.stopped
		case err == nil, o.isSettledBy(err):
			return op.recordOutcome(o.step, value, err)
		case limit > 0 && o.step.kind == db.CallStep && w.elapsed() > limit:
			o.last = err
			return op.runOut(o, fmt.Sprintf("%s did not succeed within %v of its beginning", o.what, limit))
		}
		o.last = err
		if o.isSpent() { // without a pause
			continue
		}
		if op.pauseCall(o) != nil || op.noticeCancel(o) != nil {
			return nil, op.stopped
		}
	}
}

// isSpent reports whether there were as many attempts as there may be.
func (o *outside) isSpent() bool { return o.policy.attempts > 0 && o.tries >= o.policy.attempts }

// isSettledBy reports whether an error is the outcome of the call. An attempt that was not sent
// says nothing of those before it.
func (o *outside) isSettledBy(err error) bool {
	s := saidBy(err)
	return s.final && !(o.doubt && s.unsent)
}

var errBrokenOff = errors.New("its last attempt was broken off")

// runOut ends a call that is not tried again. If no attempt was sent, or the other side reports that
// the call has not happened, the function gets the last error as a Final. Otherwise the operation
// parks, because a function that continued could pay twice, or for nothing.
func (op *Op) runOut(o *outside, what string) ([]byte, error) {
	last := o.last
	if last == nil {
		last = errBrokenOff
	}
	isUndo := o.step.kind == db.UndoStep
	if o.doubt && o.policy.find != nil {
		found, done, err := o.find(op.ctx)
		switch {
		case op.ctx.Err() != nil:
			return nil, op.interrupted()
		case err == nil && done:
			value, err := o.encode(found)
			if err = op.usable(o, err); err != nil {
				return nil, err
			}
			return op.recordOutcome(o.step, value, nil)
		case err == nil:
			o.doubt = false
		case o.isSettledBy(err):
			return op.recordOutcome(o.step, nil, err)
		}
	}
	switch {
	case !o.doubt && !isUndo:
		return op.recordOutcome(o.step, nil, Final(fmt.Errorf("operation: %s, and has not happened: %w", what, last)))
	case !o.doubt:
		return nil, op.parkFor(last, o.tries, o.of, ReasonAttemptsExhausted, "%s, and has not happened", what)
	}
	return nil, op.parkFor(last, o.tries, o.of, ReasonAttemptsExhausted, "%s, and may have happened", what)
}

// attempt makes a call once, or asks for the outcome of the attempt before.
func (op *Op) attempt(o *outside) ([]byte, error) {
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
func (op *Op) parkInDoubt(o *outside, last error) error {
	const text = "%s may have happened, and must not happen twice: ask the other side, and Resolve the step"
	if last == nil {
		return op.park(o.of, ReasonCallInDoubt, text, o.what)
	}
	return op.parkFor(last, o.tries, o.of, ReasonCallInDoubt, text, o.what)
}

// settleDoubt asks the other side for the outcome of a call in doubt, if it can be asked. It
// reports false if the call is to be made again.
func (op *Op) settleDoubt(o *outside) (value []byte, settled bool, err error) {
	if o.policy.find == nil {
		if op.work.elapsed() > o.policy.window {
			return nil, true, op.park(o.of, ReasonCallInDoubt, "%s may have happened, and after %v the other side no longer knows its key: ask there, and Resolve the step", o.what, o.policy.window)
		}
		return nil, false, nil
	}
	found, done, err := o.find(op.ctx)
	if err != nil {
		return nil, true, err
	}
	if done {
		value, err := o.encode(found)
		return value, true, op.usable(o, err)
	}
	o.doubt = false
	if j := &op.work.journal; j.canceled && o.step.kind == db.CallStep { // it has not happened, and is not made
		if o.pauseTogether == nil {
			delete(j.steps, o.step.seq)
		}
		return nil, true, op.halt(stopUnwound, nil)
	}
	return nil, false, nil
}

// send makes a call once.
func (op *Op) send(o *outside) ([]byte, error) {
	began := time.Now()
	value, err := o.try(op.ctx)
	_, happened := err.(*unusable)
	answer := saidBy(err)
	unanswered := err != nil && !happened && !answer.final && !answer.unsent
	op.work.taken(op.ctx, o.step, began, err, unanswered)
	o.doubt = o.doubt || unanswered
	switch {
	case err == nil, answer.final:
		return value, err
	case op.usable(o, err) != err:
		return nil, op.stopped
	case o.doubt && o.policy.once:
		return nil, op.parkInDoubt(o, err)
	case op.ctx.Err() != nil:
		return nil, op.interrupted()
	}
	return nil, err
}

// try runs the function of a call.
func (o *outside) try(ctx context.Context) ([]byte, error) {
	bounded, cancel := o.policy.bounded(ctx)
	defer cancel()
	bounded, stop := o.policy.watched(bounded)
	defer stop()
	value, err := o.call(bounded, o.key)
	return value, o.unbeaten(bounded, answerOf(bounded, err))
}

// find asks the other side the outcome of a call.
func (o *outside) find(ctx context.Context) (found any, done bool, err error) {
	bounded, cancel := o.policy.bounded(ctx)
	defer cancel()
	found, done, err = o.policy.find(bounded, o.key)
	return found, done, answerOf(bounded, err)
}

// unbeaten returns the error of an attempt whose context has ended because no beat came: that is no
// answer.
func (o *outside) unbeaten(ctx context.Context, err error) error {
	answer := saidBy(err)
	if _, happened := err.(*unusable); err == nil || happened || answer.unsent || answer.final || !errors.Is(context.Cause(ctx), ErrNoBeat) {
		return err
	}
	return Unknown(fmt.Errorf("%w: none for %v: %w", ErrNoBeat, o.policy.heartbeat, err))
}

// answerOf returns the error of an attempt. Behind the end of its context an error is no answer,
// whatever was made of it: text alone does not tell what the other side has said from the outcome
// of the context.
func answerOf(ctx context.Context, err error) error {
	said := saidBy(err)
	if said.final && ctx.Err() != nil && (!said.unsent || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return Unknown(errors.New(storederror.Text(err)))
	}
	return err
}

// usable parks the operation if a call has happened and its value cannot be recorded.
func (op *Op) usable(o *outside, err error) error {
	if u, ok := err.(*unusable); ok {
		return op.parkFor(u.error, o.tries, o.of, ReasonValueUnreadable, "%s has happened, and its value cannot be recorded", o.what)
	}
	return err
}

// returned has the outcome of a call recorded by the next commit.
func (op *Op) recordOutcome(s *step, value []byte, err error) ([]byte, error) {
	outcome := db.StepDone
	switch {
	case err != nil && s.kind == db.UndoStep: // the operation parks, and the undo is still to run
		return nil, err
	case err != nil:
		outcome = db.StepFailed
		value, err = op.failure(err)
	}
	op.work.outcomes[s.seq] = op.record(s, outcome, value).Step
	return value, err
}

// pauseCall pauses between two attempts: in memory if the pause is short. A suspect has survived an
// attempt, which is recorded: it gives its turn back.
func (op *Op) pauseCall(o *outside) error {
	d := o.policy.backoff(o.tries)
	op.work.warn(op.ctx, o)
	if d < longPause && !op.work.suspected {
		op.storeFailure(o, d)
		if txn.Sleep(op.ctx, d) != nil {
			return op.interrupted()
		}
		return nil
	}
	if o.pauseTogether != nil {
		op.storeFailure(o, d)
		return o.pauseTogether(d)
	}
	if err := op.commit(commit{free: true, at: o.waiting(d), failure: o.failure()}); err != nil {
		return err
	}
	return op.halt(stopSuspended, nil)
}

// notePause is the pause between two errors of attempts that are stored while the pauses of the
// call are short.
const storePause = time.Second

// storeFailure stores the error of an attempt, which Show returns. It ignores its own failure.
func (op *Op) storeFailure(o *outside, pause time.Duration) {
	if time.Since(o.stored) < storePause {
		return
	}
	o.stored = time.Now()
	w := op.work
	note := db.NoteFailure{OperationID: w.operation, Epoch: w.epoch, Pause: pause, Error: *w.stepError(o.failure())}
	if o.pauseTogether == nil { // or else the row of the call has the number
		note.Tries = o.tries
	}
	_ = w.call.Engine().Query(op.ctx, &note)
}

// warn logs the error of an attempt: the first of a run, and then ever more sparsely.
func (w *work) warn(ctx context.Context, o *outside) {
	if o.tries&(o.tries-1) == 0 {
		w.log().WarnContext(ctx, "operation: an attempt has failed", "operation", w.operation, "name", w.definition.name,
			"step", o.of, "kind", string(o.step.kind), "attempt", o.tries, "error", w.textOf(o.last))
	}
}

// noticeCancel ends the run if the operation was canceled, or canceled otherwise, during a pause
// between two attempts. Where the database cannot be asked, no attempt is made until it can. The
// calls of undos do not depend on it.
func (op *Op) noticeCancel(o *outside) error {
	if o.step.kind == db.UndoStep {
		return nil
	}
	j := &op.work.journal
	asked := db.IsCanceled{OperationID: op.work.operation}
	for pause := txn.RetryPause; ; {
		err := op.work.call.Engine().Query(op.ctx, &asked)
		switch {
		case err == nil && (asked.Canceled != j.canceled || asked.WithoutCalling != j.withoutCalling):
			return op.haltFree(errCancelNoticed)
		case err == nil:
			return nil
		case op.ctx.Err() == nil && !txn.Transient(err):
			return op.failed(err)
		case txn.Sleep(op.ctx, pause.Next()) != nil:
			return op.interrupted()
		}
	}
}

// waiting returns the position of the operation between two attempts. A call that is not in doubt
// counts as not begun: the next process may begin it.
func (o *outside) waiting(pause time.Duration) db.At {
	at := db.At{Step: o.step.name, Pause: pause, Tries: o.tries}
	if o.doubt {
		at.Kind, at.Seq, at.Undos, at.Policy = o.step.kind, o.step.seq, o.step.undos, o.step.policy
	}
	return at
}

// withdraw records, for a run that stops, that no attempt of a call was sent. Without this record
// the call is in doubt for the next process, which could not make a call that is Once.
func (op *Op) withdraw(o *outside) {
	stopped, running := op.stopped, op.ctx
	if stopped.why != stopLeft && stopped.why != stopAgain || len(op.pending) > 0 || o.doubt {
		return
	}
	op.commitStopped(commit{always: true, at: o.waiting(0), failure: o.failure()})
	op.ctx, op.stopped = running, stopped
}

// commitStopped commits for a run that stops, also if its context has ended.
func (op *Op) commitStopped(c commit) {
	running := op.ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(running), releaseLimit)
	defer cancel()
	op.close(nil)
	op.ctx, op.stopped = ctx, nil
	_ = op.commit(c)
	op.ctx = running
}

// How often a call of several was tried, as the value of its row.
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
