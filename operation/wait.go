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

// Sleep pauses the operation for d, which begins with a commit of all that came earlier and is
// counted by the database's clock. A pause of more than some seconds holds nothing: neither a
// connection, nor the caller, nor a worker. A pause that ends while no process is there ends when a
// process is.
func Sleep(op *Op, name string, d time.Duration) error {
	s, err := op.enter(request{kind: db.SleepStep, name: name})
	if err != nil {
		return err
	}
	defer op.leave()
	switch s.do {
	case run:
		op.waits(s, d)
		return op.waitFor(s, d, false)
	case wait:
		if remaining := op.work.clock.until(s.recorded.DueAt); remaining > 0 {
			return op.waitFor(s, remaining, true)
		}
	}
	return nil
}

// waits has a pause recorded by the next commit.
func (op *Op) waits(s *step, d time.Duration) {
	op.record(s, db.StepWaiting, nil).Pause = max(d, 0)
}

// waitFor waits in memory if the pause is short, and otherwise leaves the operation to a process
// that is there when it is due.
func (op *Op) waitFor(s *step, d time.Duration, recorded bool) error {
	if d > longPause {
		if err := op.commit(commit{free: true, at: db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: d}}); err != nil {
			return err
		}
		return op.halt(stopSuspended, nil)
	}
	if !recorded || op.tx != nil || len(op.pending) > 0 {
		if err := op.commit(commit{at: db.At{Kind: s.kind, Step: s.name, Seq: s.seq}}); err != nil {
			return err
		}
	}
	if txn.Sleep(op.ctx, max(d, 0)) != nil {
		return op.interrupted()
	}
	return nil
}

// Await waits for a signal: a webhook, a person's approval. It returns the value that was sent
// first under that name, also if it was sent before, and ErrTimeout if nothing was sent within
// timeout, by the database's clock. A signal of a transaction must be committed by then. Await
// holds nothing meanwhile: neither a connection, nor the caller, nor a worker. A name is awaited
// once in an operation.
func Await[T any](op *Op, name string, timeout time.Duration) (T, error) {
	var none T
	s, err := op.enter(request{kind: db.AwaitStep, name: name})
	if err != nil {
		return none, err
	}
	return inStep(op, s.name, func() (T, error) {
		if s.name != name {
			return none, op.halt(stopBroken, fmt.Errorf("%w: %q is awaited twice", ErrInvalidName, name))
		}
		op.awaits = true
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

// signalPause is the pause between two looks for a signal whose timeout is near.
const signalPause = 200 * time.Millisecond

// maxSignalRuns is how often Signal sends its statement through a pool while the database refuses
// to serialize it.
const maxSignalRuns = 10

func (op *Op) await(s *step, timeout time.Duration) ([]byte, error) {
	if s.do == replay {
		return op.replay(s)
	}
	for {
		var remaining time.Duration
		if s.do == wait { // before the look: what comes between the two came in time
			remaining = op.work.clock.until(s.recorded.DueAt)
		}
		signal := db.ReadSignal{OperationID: op.work.operation, Name: s.name}
		if err := op.look(&signal); err != nil {
			return nil, err
		}
		switch {
		case signal.Found && !s.isTooLate(signal.SentAt):
			value, err := open(op.work.call.Sealer(), signal.Value, db.BoundSignal(op.work.operation, s.name))
			if err != nil {
				return nil, op.halt(stopBroken, fmt.Errorf("operation: signal %q: %w", s.name, err))
			}
			op.record(s, db.StepDone, value)
			op.signals = append(op.signals, db.TakeSignal{OperationID: op.work.operation, Name: s.name})
			return value, nil
		case s.do == run:
			op.waits(s, timeout)
			if err := op.commit(commit{free: true, at: db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: max(timeout, 0)}}); err != nil {
				return nil, err
			}
			return nil, op.halt(stopSuspended, nil)
		case remaining <= 0:
			stored, seen := op.failure(ErrTimeout)
			op.record(s, db.StepFailed, stored)
			return nil, seen
		}
		pause := remaining
		if remaining <= longPause {
			pause = min(remaining, signalPause)
		}
		if err := op.waitFor(s, pause, true); err != nil {
			return nil, err
		}
	}
}

// isTooLate reports whether a signal was sent when the wait for it was over.
func (s *step) isTooLate(sentAt time.Time) bool {
	return s.recorded != nil && !s.recorded.DueAt.IsZero() && sentAt.After(s.recorded.DueAt)
}

// look reads a signal, on the connection that the operation has, if it has one.
func (op *Op) look(signal *db.ReadSignal) error {
	if op.work.epoch == 0 { // no caller could know its id
		return nil
	}
	ask := op.work.call.Engine().Query
	if op.tx != nil {
		ask = op.tx.Ask
	}
	if err := ask(op.ctx, signal); err != nil {
		return op.failed(err)
	}
	return nil
}

// Signal sends a value to an operation that awaits it, or will. The first of a name counts: later
// ones are dropped, as are those for an operation that has ended. If the first one has parked the
// operation, because it does not decode into the type of the Await, another one takes its place,
// and counts as sent when the first one was: send it, and then Retry the operation. conn is a pool,
// or a transaction that the signal is to be part of. Values are JSON. Of the options only
// idem.WithSealer matters: give Signal the Sealer of the operation. Without one it is refused with
// ErrUnsealed where the operation is sealed and has not ended. If transactions are serializable by
// default, the database may refuse the statement with 40001. Through a pool Signal sends it again.
// In a transaction the error is the caller's, who has to run the transaction again.
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

// Child begins an operation of another definition, and returns its answer. The child begins in the
// commit that records that this operation awaits it: there are both or there is neither. Child
// holds nothing meanwhile: neither a connection, nor the caller, nor a worker. The last commit of
// the child wakes this operation. A Worker that has the definition of the child does its work, in
// this process or in another one.
//
// The child belongs to the scope of this operation, under a key of its own, and has the id that
// ChildID returns. It is begun once: from then on neither in nor another definition at this
// position changes anything.
//
// If the child does not complete, the error is Final and wraps a *ChildError: it was rejected, or
// it is undone. If the function returns the error as it is, this operation ends in that error. A
// child that is parked keeps this operation waiting until a person has decided. There is no
// timeout: Cancel the child. If this operation is canceled while it awaits the child, the child is
// canceled, too, and this operation is undone when the child has ended.
//
// An undo undoes a child that has completed: see [Undo]. A child that has not completed has undone
// itself.
func Child[In any](op *Op, name string, d *Definition[In], in In, undo ...Undo[idem.Response]) (idem.Response, error) {
	s, err := op.enter(request{kind: db.ChildStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
	if err != nil {
		return idem.Response{}, err
	}
	op.awaits = true
	return inStep(op, s.name, func() (idem.Response, error) {
		resp, err := op.child(s, func() ([]txn.Request, error) {
			if d == nil {
				return nil, fmt.Errorf("operation: the definition of child %q is nil", name)
			}
			input, err := d.input(in)
			if err != nil {
				return nil, err
			}
			return op.childBegins(s, d.name, input)
		})
		if err != nil {
			return idem.Response{}, err
		}
		return resp, plan(op, s, undo, func() (idem.Response, error) { return resp, nil })
	})
}

// child begins a child, or finds out how it has ended.
func (op *Op) child(s *step, begins func() ([]txn.Request, error)) (idem.Response, error) {
	if s.do == run {
		requests, err := begins()
		if err != nil {
			return idem.Response{}, op.halt(stopBroken, err)
		}
		op.record(s, db.StepWaiting, nil)
		return idem.Response{}, op.untilChildEnds(s, requests...)
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
		op.record(s, end.outcome(), stored)
	}
	return op.childAnswer(s, &end)
}

// childBegins are the requests that begin a child. They stand behind all that the parent says in
// its commit, which needs the claim of its own record until then. The key is one that no call can
// have claimed before.
func (op *Op) childBegins(s *step, name string, input []byte) ([]txn.Request, error) {
	w := op.work
	id, text := ChildID(w.operation, s.name), rand.Text()
	sealed, err := seal(w.call.Sealer(), input, db.BoundInput(id))
	if err != nil {
		return nil, err
	}
	ttl := w.call.TTL()
	key := w.key.Beside(text, sha256.Sum256([]byte(text)), id, ttl)
	return []txn.Request{
		&db.Claim{Key: &key},
		&db.HoldKey{Key: &key, Room: db.Held},
		&db.BeginOperation{Key: &key, Name: name, RecordTTL: ttl, Input: sealed, Parent: w.operation, At: db.At{Kind: db.Started}},
	}, nil
}

// untilChildEnds leaves the operation to the worker that finds that the child has ended.
func (op *Op) untilChildEnds(s *step, with ...txn.Request) error {
	at := db.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: db.Endless}
	if err := op.commit(commit{free: true, at: at, with: with, wakes: len(with) > 0}); err != nil {
		return err
	}
	return op.halt(stopSuspended, nil)
}

// childOutcome returns what the child has sent at its end. If it has not ended the operation waits,
// and if that is canceled, so is the child.
func (op *Op) childOutcome(s *step) ([]byte, error) {
	w := op.work
	id := ChildID(w.operation, s.name)
	signal := db.ReadSignal{OperationID: w.operation, Name: childSignal(id)}
	if err := op.look(&signal); err != nil {
		return nil, err
	}
	switch {
	case !signal.Found && w.journal.canceled:
		return nil, op.untilChildEnds(s, &db.CancelOperation{
			OperationID: id, WithoutCalling: w.journal.withoutCalling, WithoutCode: w.journal.withoutCode,
		})
	case !signal.Found:
		return nil, op.untilChildEnds(s)
	}
	outcome, err := open(w.call.Sealer(), signal.Value, db.BoundSignal(w.operation, signal.Name))
	if err != nil {
		return nil, op.halt(stopBroken, fmt.Errorf("operation: the end of child %q: %w", s.name, err))
	}
	op.signals = append(op.signals, db.TakeSignal{OperationID: w.operation, Name: signal.Name})
	return outcome, nil
}

// childAnswer is what the function gets of the end of a child.
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

// childEnd is what a child sends to its parent at its end. It is the value of the parent's step.
type childEnd struct {
	State    db.OperationState `json:"state"`
	Canceled bool              `json:"canceled,omitempty"`
	Response *idem.Response    `json:"response,omitempty"`
}

// childSignal is the name of the signal by which a child sends its end. No signal of a user has it.
func childSignal(id string) string { return "#" + id }

// outcome is that of the parent's step.
func (e *childEnd) outcome() db.StepOutcome {
	if e.State == db.OperationCompleted {
		return db.StepDone
	}
	return db.StepFailed
}

// notifyParent returns the requests that report to the parent that this operation has ended, none if it
// has none.
func (w *work) notifyParent(end *childEnd) ([]txn.Request, error) {
	if w.parent == "" {
		return nil, nil
	}
	name := childSignal(w.operation)
	outcome, err := json.Marshal(end)
	if err == nil {
		outcome, err = seal(w.call.Sealer(), outcome, db.BoundSignal(w.parent, name))
	}
	return []txn.Request{&db.SendSignal{OperationID: w.parent, Name: name, Value: outcome}}, err
}
