package operation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Sleep pauses the operation for d. It commits all earlier steps first. From then the pause counts
// by the database's clock. During a pause of more than 5 seconds the operation holds no connection,
// and neither the caller nor a worker waits. If no process runs when the pause ends, the operation
// continues when a process does.
func Sleep(op *Op, name string, d time.Duration) error {
	s, err := op.enter(request{kind: db.SleepStep, name: name})
	if err != nil {
		return err
	}
	_, err = takeStep(op, s.name, func() (None, error) {
		switch s.do {
		case run:
			op.recordPause(s, d)
			return None{}, op.pause(s, d, false)
		case wait:
			if remaining := time.Until(op.work.clock.local(s.recorded.DueAt)); remaining > 0 {
				return None{}, op.pause(s, remaining, true)
			}
		}
		return None{}, nil
	})
	return err
}

// recordPause adds a pause to the next commit.
func (op *Op) recordPause(s *step, d time.Duration) {
	op.record(s, db.StepWaiting, nil).Pause = max(d, 0)
}

// pause waits until a pause is over. A short pause is spent in memory, once it is recorded. A long
// pause suspends the operation: its commit releases it, and a process resumes it when it is due.
func (op *Op) pause(s *step, d time.Duration, recorded bool) error {
	if d > longPause {
		return op.suspend(commit{at: s.position(d)})
	}
	if !recorded || op.tx != nil || len(op.pending) > 0 {
		if err := op.commit(commit{at: s.position(0)}); err != nil {
			return err
		}
	}
	if txn.Sleep(op.ctx, max(d, 0)) != nil {
		return op.interrupted()
	}
	return nil
}

// Await waits for a signal: a webhook, a person's approval. It returns the first value that was
// sent under the name, even if it was sent before the Await. If nothing was sent within timeout, by
// the database's clock, it returns ErrTimeout. A signal of a transaction must be committed by then.
// Meanwhile the operation holds no connection, and neither the caller nor a worker waits. An
// operation awaits a name once.
func Await[T any](op *Op, name string, timeout time.Duration) (T, error) {
	var none T
	s, err := op.enter(request{kind: db.AwaitStep, name: name})
	if err != nil {
		return none, err
	}
	return takeStep(op, s.name, func() (T, error) {
		if s.name != name {
			return none, op.halt(stopFailed, fmt.Errorf("%w: %q is awaited twice", ErrInvalidName, name))
		}
		op.usesSignals = true
		stored, err := op.await(s, timeout)
		if err != nil {
			return none, err
		}
		value, err := decode[T](jsonCodec{}, stored)
		switch {
		case err != nil && s.do == replay:
			return none, op.park(s.name, ReasonValueUnreadable, "the recorded value of step %q does not decode into %T: the code has changed", s.name, none)
		case err != nil:
			return none, op.park(s.name, ReasonSignalUnreadable, "the signal %q does not decode into %T: send another one of that name, and Retry the operation", s.name, none)
		}
		return value, nil
	})
}

// maxSignalRuns limits how often Signal repeats its statement after a serialization failure.
const maxSignalRuns = 10

// await returns the value of a signal. If there is none yet, it suspends the operation until the
// timeout. Sending the signal makes the operation due, also if it is sent before the suspension.
// The remaining time is computed before the signal is read, so that a signal sent in between is not
// lost.
func (op *Op) await(s *step, timeout time.Duration) ([]byte, error) {
	if s.do == replay {
		return op.replay(s)
	}
	var remaining time.Duration
	if s.do == wait {
		remaining = time.Until(op.work.clock.local(s.recorded.DueAt))
	}
	signal := db.ReadSignal{OperationID: op.work.operation, Name: s.name}
	if err := op.readSignal(&signal); err != nil {
		return nil, err
	}
	switch {
	case signal.Found && !s.isTooLate(signal.SentAt):
		value, err := open(op.work.execution.Sealer(), signal.Value, db.BoundSignal(op.work.operation, s.name))
		if err != nil {
			return nil, op.halt(stopFailed, fmt.Errorf("operation: signal %q: %w", s.name, err))
		}
		op.record(s, db.StepDone, value)
		op.signals = append(op.signals, db.TakeSignal{OperationID: op.work.operation, Name: s.name})
		return value, nil
	case s.do == run:
		op.recordPause(s, timeout)
		return nil, op.suspend(commit{at: s.position(max(timeout, 0))})
	case remaining > 0:
		return nil, op.suspend(commit{at: s.position(remaining)})
	}
	stored, seen := op.failure(ErrTimeout)
	op.record(s, db.StepFailed, stored)
	return nil, seen
}

// isTooLate reports whether a signal was sent after the timeout of its Await.
func (s *step) isTooLate(sentAt time.Time) bool {
	return s.recorded != nil && !s.recorded.DueAt.IsZero() && sentAt.After(s.recorded.DueAt)
}

// readSignal reads a signal, in the open transaction if there is one. Before the first commit there
// can be no signal, because no caller knows the id of the operation.
func (op *Op) readSignal(signal *db.ReadSignal) error {
	if op.work.epoch == 0 {
		return nil
	}
	ask := op.work.execution.Engine().Query
	if op.tx != nil {
		ask = op.tx.Ask
	}
	if err := ask(op.ctx, signal); err != nil {
		return op.failed(err)
	}
	return nil
}

// Signal sends a value to an operation that awaits it, or will. The first signal of a name counts.
// Later ones are dropped, as are signals to an operation that has ended. conn is a pool, or a
// transaction that the signal becomes part of. Values are JSON.
//
// If the first signal has parked the operation, because it does not decode into the type of the
// Await, another signal replaces it, and counts as sent when the first one was. Send it, and then
// Retry the operation.
//
// Of the options only idem.WithSealer matters: pass the Sealer of the operation. Without one, a
// Signal to a sealed operation that has not ended returns ErrUnsealed.
//
// If transactions are serializable by default, the database may refuse the statement with 40001.
// With a pool, Signal sends it again. In a transaction it returns the error, and the caller has to
// run the transaction again.
func Signal(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id, name string, value any, opts ...idem.Option) error {
	if err := checkName(name); err != nil {
		return err
	}
	id, err := parsedID(id)
	if err != nil {
		return err
	}
	stored, err := jsonCodec{}.Encode(value)
	switch {
	case err != nil:
		return fmt.Errorf("operation: a signal of type %T cannot be encoded: %w", value, err)
	case len(stored) > maxValue:
		return fmt.Errorf("%w: %d bytes, limit %d", ErrValueTooLarge, len(stored), maxValue)
	}
	sealer, err := idemCalls.Sealer(opts)
	if err != nil {
		return err
	}
	if stored, err = seal(sealer, stored, db.BoundSignal(id, name)); err != nil {
		return err
	}
	signal := db.SendSignal{OperationID: id, Name: name, Value: stored}
	if sealer == nil {
		signal.RefuseUnlessSealed()
	}
	err = signal.In(ctx, conn)
	if _, isPool := conn.(*pgxpool.Pool); isPool {
		for n := 1; txn.Rerunnable(err) && n < maxSignalRuns; n++ {
			err = signal.In(ctx, conn)
		}
	}
	switch {
	case err != nil:
		return err
	case !signal.Known:
		return ErrUnknownOperation
	case signal.Refused:
		return ErrUnsealed
	}
	return nil
}

// Child begins an operation of another definition, and returns its answer. The commit that begins
// the child also records that this operation awaits it. Meanwhile this operation holds no
// connection, and neither the caller nor a worker waits. The last commit of the child wakes this
// operation. A Worker that has the definition of the child does the child's work, in any process.
//
// The child belongs to the scope of this operation, has a key of its own, and the id that ChildID
// returns. It is begun once. After that, a change of in or of the definition has no effect.
//
// If the child is rejected or undone, Child returns a Final error that wraps a *ChildError. If the
// function returns it as it is, this operation ends in that error. While a child is parked, this
// operation waits until a person has decided. There is no timeout: Cancel the child. If this
// operation is canceled while it awaits the child, the child is canceled, too, and this operation
// is undone after the child has ended.
//
// An undo of the step undoes a child that has completed: see [Undo]. The undos of the steps of the
// child do not run then. A rejected or undone child has run them itself.
func Child[In any](op *Op, name string, d *Definition[In], in In, undo ...Undo[idem.Response]) (idem.Response, error) {
	s, err := op.enter(request{kind: db.ChildStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
	if err != nil {
		return idem.Response{}, err
	}
	op.usesSignals = true
	return takeStep(op, s.name, func() (idem.Response, error) {
		resp, err := op.child(s, func() ([]txn.Request, error) {
			if d == nil {
				return nil, fmt.Errorf("operation: the definition of child %q is nil", name)
			}
			input, err := d.input(in)
			if err != nil {
				return nil, err
			}
			return op.childRequests(s, d.name, input)
		})
		if err != nil {
			return idem.Response{}, err
		}
		planUndos(op, s, undo, func() (idem.Response, error) { return resp, nil })
		return resp, nil
	})
}

// child begins a child and suspends the operation, or returns the answer of the child. begins
// returns the requests that begin the child.
func (op *Op) child(s *step, begins func() ([]txn.Request, error)) (idem.Response, error) {
	if s.do == run {
		requests, err := begins()
		if err != nil {
			return idem.Response{}, op.halt(stopFailed, err)
		}
		op.record(s, db.StepWaiting, nil)
		return idem.Response{}, op.suspendForChild(s, requests...)
	}
	stored, err := s.recorded.Value, error(nil)
	if s.do == wait {
		if stored, err = op.childOutcome(s); err != nil {
			return idem.Response{}, err
		}
	}
	end := childEnd{}
	if err := json.Unmarshal(stored, &end); err != nil {
		return idem.Response{}, op.park(s.name, ReasonValueUnreadable, "the recorded end of child %q does not decode", s.name)
	}
	if s.do == wait {
		outcome := db.StepFailed
		if end.State == db.OperationCompleted {
			outcome = db.StepDone
		}
		op.record(s, outcome, stored)
	}
	return op.childAnswer(s, &end)
}

// childRequests returns the requests that begin a child. They must come last in the commit of the
// parent, because the requests before them need the claim of the parent's own key. The key of the
// child is random, so that no call can have claimed it.
func (op *Op) childRequests(s *step, name string, input []byte) ([]txn.Request, error) {
	w := op.work
	id, text := ChildID(w.operation, s.name), rand.Text()
	sealed, err := seal(w.execution.Sealer(), input, db.BoundInput(id))
	if err != nil {
		return nil, err
	}
	ttl := w.execution.TTL()
	key := w.key.Beside(text, sha256.Sum256([]byte(text)), id, ttl)
	return []txn.Request{
		&db.Claim{Key: &key},
		&db.HoldKey{Key: &key, Room: db.Held},
		&db.BeginOperation{Key: &key, Name: name, RecordTTL: ttl, Input: sealed, Parent: w.operation, At: db.At{Kind: db.Started}},
	}, nil
}

// suspendForChild suspends the operation until the end of the child makes it due.
func (op *Op) suspendForChild(s *step, with ...txn.Request) error {
	return op.suspend(commit{at: s.position(db.Endless), with: with, wakes: len(with) > 0})
}

// childOutcome returns what the child has sent at its end. If the child has not ended, the
// operation is suspended; if the operation was canceled, the same commit cancels the child.
func (op *Op) childOutcome(s *step) ([]byte, error) {
	w := op.work
	id := ChildID(w.operation, s.name)
	signal := db.ReadSignal{OperationID: w.operation, Name: childSignal(id)}
	if err := op.readSignal(&signal); err != nil {
		return nil, err
	}
	switch {
	case !signal.Found && w.journal.canceled:
		return nil, op.suspendForChild(s, &db.CancelOperation{
			OperationID: id, WithoutCalling: w.journal.withoutCalling, WithoutCode: w.journal.withoutCode,
		})
	case !signal.Found:
		return nil, op.suspendForChild(s)
	}
	outcome, err := open(w.execution.Sealer(), signal.Value, db.BoundSignal(w.operation, signal.Name))
	if err != nil {
		return nil, op.halt(stopFailed, fmt.Errorf("operation: the end of child %q: %w", s.name, err))
	}
	op.signals = append(op.signals, db.TakeSignal{OperationID: w.operation, Name: signal.Name})
	return outcome, nil
}

// childAnswer returns the result of Child for the end of a child.
func (op *Op) childAnswer(s *step, end *childEnd) (idem.Response, error) {
	id := ChildID(op.work.operation, s.name)
	switch {
	case end.State == db.OperationCompleted && end.Response != nil:
		return *end.Response, nil
	case end.State == db.OperationFailed && end.Response != nil:
		return idem.Response{}, Final(&ChildError{OperationID: id, Rejected: end.Response})
	case end.State == db.OperationUndone:
		return idem.Response{}, Final(&ChildError{OperationID: id, Canceled: end.Canceled})
	}
	return idem.Response{}, op.park(s.name, ReasonValueUnreadable, "the recorded end of child %q does not decode", s.name)
}

// childEnd is what a child sends to its parent at its end. The parent stores it as the value of its
// step.
type childEnd struct {
	State    db.OperationState `json:"state"`
	Canceled bool              `json:"canceled,omitempty"`
	Response *idem.Response    `json:"response,omitempty"`
}

// childSignal returns the name of the signal by which a child sends its end. "#" is invalid in the
// names of other signals.
func childSignal(id string) string { return "#" + id }

// notifyParent returns the requests that send the end of this operation to its parent. There are
// none without a parent.
func (w *work) notifyParent(end *childEnd) ([]txn.Request, error) {
	if w.parent == "" {
		return nil, nil
	}
	name := childSignal(w.operation)
	outcome, err := json.Marshal(end)
	if err == nil {
		outcome, err = seal(w.execution.Sealer(), outcome, db.BoundSignal(w.parent, name))
	}
	return []txn.Request{&db.SendSignal{OperationID: w.parent, Name: name, Value: outcome}}, err
}
