package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Call is a step outside of Postgres. It is made in no transaction and holds no connection, and never before all that came
// earlier is committed. The key that fn is given names this call of this operation: it is the same in every attempt and in every
// process, and goes to the other side.
//
// safety says what to do when it is not known whether the call has happened. An error of fn is tried again after a pause that
// grows, as safety allows; Final ends that, and goes to the function of the operation; NotSent is tried again in any case. Pauses
// of more than some seconds free the caller, or the worker, and are known to the process that goes on.
//
// The value is on record with the next commit, or with the end of the run, however that ends. If the process dies before that, the call
// is made again, or asked about, or the operation is parked, as safety says.
func Call[T any](op *Op, name string, safety Safety, fn func(ctx context.Context, key string) (T, error), opts ...CallOption) (T, error) {
	s, err := op.enter(store.CallStep, name)
	if err != nil {
		var none T
		return none, err
	}
	return inStep(op, s.name, func() (T, error) {
		if s.found != nil {
			stored, err := op.replay(s)
			return result[T](op, s, stored, err)
		}
		stored, err := op.callOut(outsideOf(op, s, safety, fn, opts))
		return result[T](op, s, stored, err)
	})
}

func outsideOf[T any](op *Op, s *step, safety Safety, fn func(ctx context.Context, key string) (T, error), opts []CallOption) *outside {
	return &outside{
		step: s, safety: safety, options: callOptionsOf(opts), key: derivedKey(op.work.operation, s.kind, s.name),
		call: func(ctx context.Context, key string) ([]byte, error) {
			value, err := fn(ctx, key)
			return encoded(op, value, err)
		},
		encode: func(found any) ([]byte, error) {
			value, ok := found.(T)
			if !ok {
				return nil, &unusable{fmt.Errorf("find returns %T, and the call %T", found, value)}
			}
			return encoded(op, value, nil)
		},
	}
}

// unusable is the error of a call that has happened, and whose value cannot be recorded.
type unusable struct{ error }

func encoded[T any](op *Op, value T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	stored, _, err := encode(op.work.definition.codec, value)
	if err != nil {
		return nil, &unusable{err}
	}
	return stored, nil
}

// outside is a call as it is made.
type outside struct {
	step    *step
	safety  Safety
	options callOptions
	tries   int
	doubt   bool // an attempt may have been sent, and has no answer
	key     string
	call    func(ctx context.Context, key string) ([]byte, error)
	encode  func(found any) ([]byte, error)
	pauses  func(d time.Duration) error // a long pause, of one that is made together with others
}

// check holds the call to the rules.
func (o *outside) check() error {
	if !o.safety.isValid() {
		return fmt.Errorf("operation: Call %q has no safety: give it Keyed with a window, Asked, or Once", o.step.name)
	}
	return o.options.check(&o.safety)
}

// longPause is a pause that frees the worker or the caller.
const longPause = 5 * time.Second

// callOut brings a call to an outcome.
func (op *Op) callOut(o *outside) ([]byte, error) {
	w := op.work
	if known, ok := w.returned[o.step.seq]; ok && known.Kind == o.step.kind && known.Name == o.step.name { // in an earlier run of this process
		op.remember(o.step, known.Outcome, known.Value)
		o.step.found = &known
		return op.replay(o.step)
	}
	if err := o.check(); err != nil {
		return nil, op.halt(broken, err)
	}
	o.doubt = w.epoch > 0 && w.at.Seq == o.step.seq // a process that is gone has begun it
	if o.doubt || w.at.Seq == 0 && w.at.Step == o.step.name {
		o.tries = w.at.Tries
	}
	op.wasParallel(o)
	if !o.doubt {
		if err := op.commit(commit{at: store.At{Kind: o.step.kind, Step: o.step.name, Seq: o.step.seq, Tries: o.tries}}); err != nil {
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

// wasParallel takes over what is on record of a Call that older code has made together with others.
func (op *Op) wasParallel(o *outside) {
	recorded, ok := op.work.recorded[o.step.seq]
	switch {
	case !ok || o.step.kind != store.CallStep:
	case recorded.Outcome == store.StepNotSent:
		o.doubt, o.tries = false, triesOf(recorded.Value)
		op.remember(o.step, store.StepBegun, recorded.Value)
	case recorded.Outcome == store.StepBegun && !recorded.DueAt.IsZero():
		o.doubt, o.tries = true, triesOf(recorded.Value)
		op.work.elapsed = op.work.since(recorded.DueAt)
	}
}

// tryOut makes attempts until one settles the call, or no other may follow.
func (op *Op) tryOut(o *outside) ([]byte, error) {
	w := op.work
	for last := errBrokenOff; ; {
		if o.isSpent() {
			return op.runOut(o, last, "step %q did not succeed in %d attempts", o.step.name, o.tries)
		}
		value, err := op.attempt(o)
		switch limit := w.definition.limit; {
		case op.stopped != nil:
			return nil, op.stopped
		case err == nil, o.isSettledBy(err):
			return op.returned(o.step, value, err)
		case limit > 0 && o.step.kind == store.CallStep && w.elapsed() > limit:
			return op.runOut(o, err, "step %q did not succeed within %v of its beginning", o.step.name, limit)
		case o.isSpent(): // without a pause
		case op.pauseCall(o) != nil:
			return nil, op.stopped
		}
		last = err
	}
}

var errBrokenOff = errors.New("its last attempt was broken off")

// isSpent reports whether there were as many attempts as there may be.
func (o *outside) isSpent() bool { return o.options.attempts > 0 && o.tries >= o.options.attempts }

// isSettledBy reports whether an error is the outcome of the call. One that was not sent says nothing of an attempt before it.
func (o *outside) isSettledBy(err error) bool {
	s := saidBy(err)
	return s.final && !(o.doubt && s.unsent)
}

// runOut ends a call that is not tried again. If no attempt was sent, or the other side says that it has not happened, and can not any
// more, its last error is final, and goes to the function. Otherwise that is not known: going on could mean to pay twice, or for nothing.
func (op *Op) runOut(o *outside, last error, format string, args ...any) ([]byte, error) {
	notHappened := Final(fmt.Errorf("operation: "+format+", and has not happened: %w", append(args, last)...))
	if !o.doubt {
		return op.returned(o.step, nil, notHappened)
	}
	if o.safety.find != nil {
		found, done, err := o.find(op.ctx)
		switch {
		case op.ctx.Err() != nil:
			return nil, op.interrupted()
		case err == nil && done:
			value, err := o.encode(found)
			if err = op.usable(o, err); err != nil {
				return nil, err
			}
			return op.returned(o.step, value, nil)
		case err == nil:
			return op.returned(o.step, nil, notHappened)
		case o.isSettledBy(err):
			return op.returned(o.step, nil, err)
		}
	}
	return nil, op.park(format+", and it is not known whether it has happened", args...)
}

// attempt makes a call once, or asks for the outcome of the one before.
func (op *Op) attempt(o *outside) ([]byte, error) {
	if op.ctx.Err() != nil {
		return nil, op.interrupted()
	}
	o.tries++
	op.work.at.Tries = o.tries
	switch {
	case o.doubt && o.safety.once:
		return nil, op.park("it is not known whether step %q has happened, and it must not happen twice", o.step.name)
	case o.doubt && o.safety.find != nil:
		found, done, err := o.find(op.ctx)
		if err != nil {
			return nil, err
		}
		if done {
			value, err := o.encode(found)
			return value, op.usable(o, err)
		}
		o.doubt = false
	case o.doubt && op.work.elapsed() > o.safety.window:
		return nil, op.park("it is not known whether step %q has happened, and after %v the other side no longer knows its key", o.step.name, o.safety.window)
	}
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
	case o.doubt && o.safety.once:
		return nil, op.park("it is not known whether step %q has happened, and it must not happen twice", o.step.name)
	case op.ctx.Err() != nil:
		return nil, op.interrupted()
	}
	return nil, err
}

// try makes a call once.
func (o *outside) try(ctx context.Context) ([]byte, error) {
	bounded, cancel := o.options.bounded(ctx)
	defer cancel()
	bounded, stop := o.options.watched(bounded)
	defer stop()
	value, err := o.call(bounded, o.key)
	return value, o.options.unbeaten(bounded, answered(bounded, err))
}

// find asks the other side the outcome of a call.
func (o *outside) find(ctx context.Context) (found any, done bool, err error) {
	bounded, cancel := o.options.bounded(ctx)
	defer cancel()
	found, done, err = o.safety.find(bounded, o.key)
	return found, done, answered(bounded, err)
}

// unbeaten returns the error of an attempt whose context has ended because no beat came: that is no answer.
func (o *callOptions) unbeaten(ctx context.Context, err error) error {
	answer := saidBy(err)
	if _, happened := err.(*unusable); err == nil || happened || answer.unsent || answer.final || !errors.Is(context.Cause(ctx), ErrNoBeat) {
		return err
	}
	return Unknown(fmt.Errorf("%w: none for %v: %w", ErrNoBeat, o.silence, err))
}

// answered returns the error of an attempt. Behind the end of its context an error is no answer, whatever was made of it: text alone does not
// tell what the other side has said from the outcome of the context.
func answered(ctx context.Context, err error) error {
	said := saidBy(err)
	if said.final && ctx.Err() != nil && (!said.unsent || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return Unknown(errors.New(textOf(err)))
	}
	return err
}

// usable parks the operation if a call has happened and its value is of no use.
func (op *Op) usable(o *outside, err error) error {
	if u, ok := err.(*unusable); ok {
		return op.parkFor(u.error, "step %q has happened, and its value cannot be recorded", o.step.name)
	}
	return err
}

// returned has the outcome of a call recorded. It goes with the next commit.
func (op *Op) returned(s *step, value []byte, err error) ([]byte, error) {
	outcome := store.StepDone
	switch {
	case err != nil && s.kind == store.UndoStep: // the operation is parked, and the undo still to be done
		return nil, err
	case err != nil:
		outcome = store.StepFailed
		value, err = op.failure(err)
	case s.kind == store.UndoStep:
		outcome = store.StepUndone
	}
	op.work.returned[s.seq] = store.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value}
	op.remember(s, outcome, value)
	return value, err
}

// pauseCall pauses between two attempts: in memory if that is short. A suspect has survived an attempt, which is put on record: it gives
// back its turn, or it would keep all others from theirs for as long as the other side does not answer.
func (op *Op) pauseCall(o *outside) error {
	d := o.options.pause(o.tries)
	if d < longPause && !op.work.suspected {
		if txn.Sleep(op.ctx, d) != nil {
			return op.interrupted()
		}
		return nil
	}
	if o.pauses != nil {
		return o.pauses(d)
	}
	if err := op.commit(commit{free: true, at: o.waiting(d)}); err != nil {
		return err
	}
	return op.halt(suspended, nil)
}

// waiting is where the operation is between two attempts. Without a doubt no step is under way: the next process may begin it.
func (o *outside) waiting(pause time.Duration) store.At {
	at := store.At{Step: o.step.name, Pause: pause, Tries: o.tries}
	if o.doubt {
		at.Kind, at.Seq = o.step.kind, o.step.seq
	}
	return at
}

// withdraw records, for a run that stops, that nothing of a call was sent, or else the next process could not make one that is Once. If
// that fails, the next process takes the call for one that was sent.
func (op *Op) withdraw(o *outside) {
	stopped, running := op.stopped, op.ctx
	if stopped.why != left && stopped.why != again || len(op.pending) > 0 || o.doubt {
		return
	}
	op.close(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(running), letGoLimit)
	defer cancel()
	op.ctx, op.stopped = ctx, nil
	_ = op.commit(commit{always: true, at: o.waiting(0)})
	op.ctx, op.stopped = running, stopped
}
