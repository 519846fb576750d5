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

// Child begins an operation of another definition, and returns its answer. The child begins in the commit that records that this
// operation awaits it: there are both or there is neither. It holds nothing meanwhile: neither a connection, nor the caller, nor a
// worker. The last commit of the child wakes this operation. A Worker that has the definition of the child does its work, in this process or
// in another one, as after Start.
//
// The child belongs to the scope of this operation, under a key of its own, and has the id that ChildID tells. Its input is sealed as
// that of this operation. It is begun once: from then on neither in nor another definition at this place changes anything.
//
// If the child does not complete, the error is Final and wraps a *ChildError: it was rejected, or it is undone. The function may go
// another way. If it returns the error as it is, this operation ends in that error: what has an undo is undone, and its key is free. A child that is parked
// keeps this operation waiting until a person has seen to the child. There is no timeout: Cancel the child.
//
// A child that has completed is taken back, like a Call that has happened, by the Undo or UndoTx that stands behind it. If this operation is
// cancelled while it awaits the child, the child is cancelled too, and this operation goes on when the child has ended.
func Child[In any](op *Op, name string, d *Definition[In], in In) (idem.Response, error) {
	s, err := op.enter(store.ChildStep, name)
	if err != nil {
		return idem.Response{}, err
	}
	op.awaits = true
	return inStep(op, s.name, func() (idem.Response, error) {
		return op.child(s, func() ([]txn.Request, error) {
			if d == nil {
				return nil, fmt.Errorf("operation: the definition of child %q is nil", name)
			}
			input, err := d.input(in)
			if err != nil {
				return nil, err
			}
			return op.childBegins(s, d.name, input)
		})
	})
}

// child begins a child, or finds out how it has ended.
func (op *Op) child(s *step, begins func() ([]txn.Request, error)) (idem.Response, error) {
	if s.found == nil {
		requests, err := begins()
		if err != nil {
			return idem.Response{}, op.halt(broken, err)
		}
		op.remember(s, store.StepWaiting, nil)
		return idem.Response{}, op.untilChildEnds(s, requests...)
	}
	stored, err := s.found.Value, error(nil)
	if s.found.Outcome == store.StepWaiting {
		if stored, err = op.childTold(s); err != nil {
			return idem.Response{}, err
		}
	}
	end := childEnd{}
	if err := json.Unmarshal(stored, &end); err != nil {
		return idem.Response{}, op.park("the recorded end of child %q does not decode", s.name)
	}
	if s.found.Outcome == store.StepWaiting {
		op.remember(s, end.outcome(), stored)
	}
	return op.childAnswer(s, &end)
}

// childBegins are the requests that begin a child. They stand behind all that the parent has to say in its commit, which needs the claim
// of its own record until then. The key is one that no call can have claimed before.
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
	err := op.commit(commit{free: true, at: store.At{Kind: s.kind, Step: s.name, Seq: s.seq, Pause: store.Endless}, with: with, rouses: len(with) > 0})
	if err != nil {
		return err
	}
	return op.halt(suspended, nil)
}

// childTold returns what the child has told of its end. If it has not ended the operation waits, and if that is cancelled, so is the child.
func (op *Op) childTold(s *step) ([]byte, error) {
	id := ChildID(op.work.operation, s.name)
	signal := store.ReadSignal{OperationID: op.work.operation, Name: childSignal(id)}
	if err := op.look(&signal); err != nil {
		return nil, err
	}
	switch {
	case !signal.Found && op.work.cancelled:
		return nil, op.untilChildEnds(s, &store.ReviveOperation{OperationID: id, Cancel: true, Fresh: true})
	case !signal.Found:
		return nil, op.untilChildEnds(s)
	}
	told, err := open(op.work.call.Sealer(), signal.Value, store.BoundSignal(op.work.operation, signal.Name))
	if err != nil {
		return nil, op.halt(broken, fmt.Errorf("operation: the end of child %q: %w", s.name, err))
	}
	op.signals = append(op.signals, store.TakeSignal{OperationID: op.work.operation, Name: signal.Name})
	return told, nil
}

// childAnswer is what the function is given of the end of a child.
func (op *Op) childAnswer(s *step, end *childEnd) (idem.Response, error) {
	id := ChildID(op.work.operation, s.name)
	switch {
	case end.State == store.OperationCompleted && end.Response != nil:
		return *end.Response, nil
	case end.State == store.OperationFailed && end.Response != nil:
		return idem.Response{}, Final(&ChildError{OperationID: id, Rejected: end.Response})
	case end.State == store.OperationUndone:
		if end.Cancelled && op.work.cancelled && !op.work.undoing {
			op.cut = true
		}
		return idem.Response{}, Final(&ChildError{OperationID: id, Cancelled: end.Cancelled})
	}
	return idem.Response{}, op.park("the recorded end of child %q does not decode", s.name)
}
