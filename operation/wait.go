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

// Sleep pauses the operation for d. It commits all earlier steps first. The pause starts with this
// commit, and counts by the database's clock. During a pause of more than 5 seconds the operation
// is released: it occupies no connection and no worker. If no process runs when the pause ends, the
// operation continues as soon as a process runs.
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

func (op *Op) recordPause(s *step, d time.Duration) {
	op.record(s, db.StepWaiting, nil).Pause = max(d, 0)
}

// pause waits until a pause has ended. A short pause is recorded, and then the process sleeps. A
// long pause suspends the operation: the commit of the pause releases it, and a process resumes it
// when it is due.
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

// Await waits for a signal, such as a webhook or the approval of a person. It returns the first
// value that was sent under the name, even if the value was sent before the Await. If nothing was
// sent within timeout, by the database's clock, Await returns ErrTimeout. A signal that is sent in
// a transaction must also be committed within timeout. While the operation waits, it occupies no
// connection and no worker. An operation can await each name once.
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

// await returns the value of a signal. If the signal was not sent yet, await suspends the operation
// until the timeout. A signal that is sent meanwhile makes the operation due, even if it is sent
// before the commit of the suspension. await computes the remaining time before it reads the
// signal. Otherwise it could miss a signal that is sent after the read and before the timeout.
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

// Signal sends a value to an operation, which receives the value by Await, now or later. The first
// signal of a name counts, and later signals of the name are dropped. Signals to an operation that
// has ended are dropped, too. conn is a pool, or a transaction that commits the signal. The value
// is stored as JSON.
//
// If the first signal does not decode into the type of the Await, the operation parks. Another
// signal of the same name then replaces the first, and counts as sent when the first was sent. Send
// the new signal, and then Retry the operation.
//
// Of the options only idem.WithSealer has an effect: pass the Sealer of the operation. Without a
// Sealer, Signal returns ErrUnsealed if the operation is sealed and has not ended.
//
// If transactions are serializable by default, the database may refuse the statement with SQLSTATE
// 40001. If conn is a pool, Signal sends the statement again. If conn is a transaction, Signal
// returns the error, and the caller has to run the transaction again.
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

// Child begins an operation of another definition, the child, and returns its answer. The commit
// that begins the child also records that this operation, the parent, awaits the child. While the
// parent waits, it occupies no connection and no worker. The last commit of the child makes the
// parent due. A Worker that has the definition of the child does the child's work, in any process.
//
// The child has the scope of the parent, a key of its own, and the id that ChildID returns. The
// child is begun once. After that, a change of in or of the definition has no effect.
//
// If the child is rejected or undone, Child returns a Final error that wraps a *ChildError. If the
// function returns this error unchanged, the parent ends in it. While the child is parked, the
// parent waits until a person has decided about the child. The wait has no timeout; to end it,
// Cancel the child. If the parent is canceled while it awaits the child, the child is canceled,
// too. The parent is undone after the child has ended.
//
// An undo of the step reverses a child that has completed: see [Undo]. The undos of the child's own
// steps do not run in that case. A rejected or undone child has run its own undos already.
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

// child begins a child and suspends the operation, or returns the answer of the child if the child
// has ended. The function begins returns the requests that begin the child.
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
// parent: they make the child's key the claimed key of the transaction, and the other requests need
// the claim of the parent's key. The key of the child is random, so that no other call can have
// claimed it.
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

// childOutcome returns the encoded childEnd that the child has sent at its end. If the child has
// not ended, childOutcome suspends the operation. If the operation was canceled, the same commit
// also cancels the child.
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

// childEnd is the message that a child sends to its parent at its end. The parent stores it as the
// value of the Child step.
type childEnd struct {
	State    db.OperationState `json:"state"`
	Canceled bool              `json:"canceled,omitempty"`
	Response *idem.Response    `json:"response,omitempty"`
}

// childSignal returns the name of the signal by which the child of the given id sends its end.
// Callers of Signal cannot send it, because "#" is invalid in their names.
func childSignal(id string) string { return "#" + id }

// notifyParent returns the requests that send the end of this operation to its parent. It returns
// none if the operation has no parent.
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
