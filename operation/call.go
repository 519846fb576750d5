package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// CallOption changes how one Call behaves.
type CallOption func(*callOptions)

type callOptions struct{ attempts int }

// Attempts bounds how often a Call is tried, also where callers leave and others go on. Then the operation is parked, unless the call is Asked and the other side says that it has
// not happened, and can not any more: then the last error goes to the function, as one that is Final. The default is no bound.
func Attempts(n int) CallOption { return func(o *callOptions) { o.attempts = n } }

// Call is a step outside of Postgres. It is made in no transaction and holds no connection, and never before all that came
// earlier is durable. The key that fn is given names this call of this operation: it is the same in every attempt and in every
// process, and goes to the other side.
//
// safety says what to do when nobody knows whether the call has happened. An error of fn is tried again after a pause that
// grows, as safety allows; Final ends that, and goes to the function of the operation. Pauses of more than some seconds free
// the caller, or the worker, and are known to whoever goes on.
//
// The value is on record with the next commit, or with the end of the run, however that ends. If the process dies before that, the call is made again, or asked about, or the
// operation is parked, as safety says.
func Call[T any](op *Op, name string, safety Safety, fn func(ctx context.Context, key string) (T, error), opts ...CallOption) (T, error) {
	s, err := op.enter(store.CallStep, name)
	if err != nil {
		var none T
		return none, err
	}
	defer op.leave()
	if s.found != nil {
		stored, err := op.replay(s)
		return result[T](op, s.name, stored, err)
	}
	stored, err := op.callOut(&outside{
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
	})
	return result[T](op, s.name, stored, err)
}

func callOptionsOf(opts []CallOption) (o callOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
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
	key     string
	call    func(ctx context.Context, key string) ([]byte, error)
	encode  func(found any) ([]byte, error)
}

// longPause is a pause that frees whoever works on the operation.
const longPause = 5 * time.Second

// callOut brings a call to an outcome.
func (op *Op) callOut(o *outside) ([]byte, error) {
	w := op.work
	if known, ok := w.returned[o.step.seq]; ok && known.Kind == o.step.kind && known.Name == o.step.name { // in an earlier run of this process
		op.remember(o.step, known.Outcome, known.Value)
		o.step.found = &known
		return op.replay(o.step)
	}
	if !o.safety.isValid() {
		return nil, op.halt(broken, fmt.Errorf("operation: Call %q has no safety: give it Keyed with a window, Asked, or Once", o.step.name))
	}
	begun := w.epoch > 0 && w.at.Seq == o.step.seq
	if !begun {
		if err := op.commit(commit{at: store.At{Kind: o.step.kind, Step: o.step.name, Seq: o.step.seq}}); err != nil {
			return nil, err
		}
	}
	for pause := (pauses{w.at.Tries}); ; {
		if err := op.bounded(o, pause.tries, errCutOff); err != nil {
			return op.runOut(o, err)
		}
		value, err := op.attempt(o, begun)
		if op.stopped != nil {
			return nil, op.stopped
		}
		if err == nil || IsFinal(err) {
			return op.returned(o.step, value, err)
		}
		begun = true
		pause.tries = w.at.Tries
		if err := op.bounded(o, pause.tries, err); err != nil {
			return op.runOut(o, err)
		}
		if limit := w.definition.limit; limit > 0 && o.step.kind == store.CallStep && w.elapsed() > limit {
			return op.runOut(o, &ranOut{fmt.Sprintf("step %q did not succeed within %v of its beginning", o.step.name, limit), err})
		}
		if err := op.pauseCall(o, &pause); err != nil {
			return nil, err
		}
	}
}

var errCutOff = errors.New("the last attempt was cut off")

// bounded returns an error if a call was tried as often as it may be.
func (op *Op) bounded(o *outside, tries int, last error) *ranOut {
	if o.options.attempts <= 0 || tries < o.options.attempts {
		return nil
	}
	return &ranOut{fmt.Sprintf("step %q did not succeed in %d attempts", o.step.name, tries), last}
}

// ranOut says why a call is not tried again.
type ranOut struct {
	text string
	last error
}

// runOut ends a call that is not tried again. If the other side says that it has not happened, and can not any more, its last
// error is final, and goes to the function. Whoever cannot ask does not know that: going on could mean to pay twice, or for nothing.
func (op *Op) runOut(o *outside, why *ranOut) ([]byte, error) {
	if o.safety.find != nil {
		found, done, err := o.safety.find(op.ctx, o.key)
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
			return op.returned(o.step, nil, Final(fmt.Errorf("operation: %s, and has not happened: %w", why.text, why.last)))
		}
	}
	return nil, op.park("%s, and nobody knows whether it has happened", why.text)
}

// attempt makes a call once, or asks what became of the one before.
func (op *Op) attempt(o *outside, begun bool) ([]byte, error) {
	if op.ctx.Err() != nil {
		return nil, op.interrupted()
	}
	op.work.at.Tries++
	switch {
	case begun && o.safety.once:
		return nil, op.park("nobody knows whether step %q has happened, and it must not happen twice", o.step.name)
	case begun && o.safety.find != nil:
		found, done, err := o.safety.find(op.ctx, o.key)
		if err != nil {
			return nil, err
		}
		if done {
			value, err := o.encode(found)
			return value, op.usable(o, err)
		}
	case begun && op.work.elapsed() > o.safety.window:
		return nil, op.park("nobody knows whether step %q has happened, and after %v the other side no longer knows its key", o.step.name, o.safety.window)
	}
	began := time.Now()
	value, err := o.call(op.ctx, o.key)
	_, happened := err.(*unusable)
	op.work.taken(op.ctx, o.step, began, err, err != nil && !IsFinal(err) && !happened)
	switch {
	case err == nil, IsFinal(err):
		return value, err
	case op.usable(o, err) != err:
		return nil, op.stopped
	case o.safety.once:
		return nil, op.park("nobody knows whether step %q has happened, and it must not happen twice", o.step.name)
	case op.ctx.Err() != nil:
		return nil, op.interrupted()
	}
	return nil, err
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
		outcome, value = store.StepFailed, encodeFailure(err, nil)
	case s.kind == store.UndoStep:
		outcome = store.StepUndone
	}
	op.work.returned[s.seq] = store.Step{Seq: s.seq, Kind: s.kind, Name: s.name, Outcome: outcome, Value: value}
	op.remember(s, outcome, value)
	return value, err
}

// pauseCall pauses between two attempts: in memory if that is short.
func (op *Op) pauseCall(o *outside, pause *pauses) error {
	d := pause.next()
	if d < longPause {
		if txn.Sleep(op.ctx, d) != nil {
			return op.interrupted()
		}
		return nil
	}
	err := op.commit(commit{free: true, at: store.At{Kind: o.step.kind, Step: o.step.name, Seq: o.step.seq, Pause: d, Tries: pause.tries}})
	if err != nil {
		return err
	}
	return op.halt(suspended, nil)
}

// pauses between the attempts of a call grow by a factor of two, and are drawn at random below that.
type pauses struct{ tries int }

const (
	firstPause = 200 * time.Millisecond
	maxPause   = time.Minute
)

func (p *pauses) next() time.Duration {
	limit := maxPause
	if p.tries < 10 {
		limit = min(firstPause<<p.tries, maxPause)
	}
	return max(rand.N(limit), firstPause/10)
}
