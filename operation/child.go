package operation

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

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
	s, err := op.enter(request{kind: store.ChildStep, name: name, undos: len(undo), invalid: checkUndos(undo)})
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
			return idem.Response{}, op.halt(broken, err)
		}
		op.remember(s, store.StepWaiting, nil)
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
		op.remember(s, end.outcome(), stored)
	}
	return op.childAnswer(s, &end)
}

// childBegins are the requests that begin a child. They stand behind all that the parent says in
// its commit, which needs the claim of its own record until then. The key is one that no call can
// have claimed before.
func (op *Op) childBegins(s *step, name string, input []byte) ([]txn.Request, error) {
	w := op.work
	id, text := ChildID(w.operation, s.name), rand.Text()
	sealed, err := seal(w.call.Sealer(), input, store.BoundInput(id))
	if err != nil {
		return nil, err
	}
	ttl := w.call.TTL()
	key := w.key.Beside(text, sha256.Sum256([]byte(text)), id, ttl)
	return []txn.Request{
		&store.Claim{Key: &key},
		&store.HoldKey{Key: &key, Room: store.Held},
		&store.BeginOperation{Key: &key, Name: name, TTL: ttl, Input: sealed, Parent: w.operation, At: store.At{Kind: store.Started}},
	}, nil
}

// untilChildEnds leaves the operation to the worker that finds that the child has ended.
func (op *Op) untilChildEnds(s *step, with ...txn.Request) error {
	at := store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: store.Endless}
	if err := op.commit(commit{free: true, at: at, with: with, rouses: len(with) > 0}); err != nil {
		return err
	}
	return op.halt(suspended, nil)
}

// childOutcome returns what the child has sent at its end. If it has not ended the operation waits,
// and if that is canceled, so is the child.
func (op *Op) childOutcome(s *step) ([]byte, error) {
	w := op.work
	id := ChildID(w.operation, s.name)
	signal := store.ReadSignal{OperationID: w.operation, Name: childSignal(id)}
	if err := op.look(&signal); err != nil {
		return nil, err
	}
	switch {
	case !signal.Found && w.journal.canceled:
		return nil, op.untilChildEnds(s, &store.CancelOperation{
			OperationID: id, WithoutCalling: w.journal.withoutCalling, WithoutCode: w.journal.withoutCode,
		})
	case !signal.Found:
		return nil, op.untilChildEnds(s)
	}
	outcome, err := open(w.call.Sealer(), signal.Value, store.BoundSignal(w.operation, signal.Name))
	if err != nil {
		return nil, op.halt(broken, fmt.Errorf("operation: the end of child %q: %w", s.name, err))
	}
	op.signals = append(op.signals, store.TakeSignal{OperationID: w.operation, Name: signal.Name})
	return outcome, nil
}

// childAnswer is what the function gets of the end of a child.
func (op *Op) childAnswer(s *step, end *childEnd) (idem.Response, error) {
	id := ChildID(op.work.operation, s.name)
	switch {
	case end.State == store.OperationCompleted && end.Response != nil:
		return *end.Response, nil
	case end.State == store.OperationFailed && end.Response != nil:
		return idem.Response{}, Final(&ChildError{OperationID: id, Rejected: end.Response})
	case end.State == store.OperationUndone:
		return idem.Response{}, Final(&ChildError{OperationID: id, Canceled: end.Canceled})
	}
	return idem.Response{}, op.park(s.name, ReasonValueUnreadable, "the recorded end of child %q does not decode", s.name)
}

// childEnd is what a child sends to its parent at its end. It is the value of the parent's step.
type childEnd struct {
	State    store.OperationState `json:"state"`
	Canceled bool                 `json:"canceled,omitempty"`
	Response *idem.Response       `json:"response,omitempty"`
}

// childSignal is the name of the signal by which a child sends its end. No signal of a user has it.
func childSignal(id string) string { return "#" + id }

// outcome is that of the parent's step.
func (e *childEnd) outcome() store.StepOutcome {
	if e.State == store.OperationCompleted {
		return store.StepDone
	}
	return store.StepFailed
}

// tellParent returns what reports to the parent of this operation that it has ended, nothing if it
// has none.
func (w *work) tellParent(end *childEnd) ([]txn.Request, error) {
	if w.parent == "" {
		return nil, nil
	}
	name := childSignal(w.operation)
	outcome, err := json.Marshal(end)
	if err == nil {
		outcome, err = seal(w.call.Sealer(), outcome, store.BoundSignal(w.parent, name))
	}
	return []txn.Request{&store.SendSignal{OperationID: w.parent, Name: name, Value: outcome}}, err
}
