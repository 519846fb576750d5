package operation

import (
	"context"

	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// The error in which an operation has ended is the answer of every call that has waited for it: none of them begins the work anew. It is on
// record behind the last step, as the error of a step is.

// endsIn has the error recorded in which the operation ends, and returns it as every call is told it.
func (op *Op) endsIn(cause error) error {
	if cause == ErrCancelled {
		return cause
	}
	stored, seen := op.failure(cause)
	op.remember(&step{seq: max(op.seq, len(op.work.recorded)) + 1, kind: store.EndStep, name: "error"}, store.StepFailed, stored)
	return &endedError{cause: ofFunction(seen)}
}

// endedIn returns the ending of a call that has waited for the operation, if that is undone.
func (w *work) endedIn(ctx context.Context, ask func(context.Context, ...txn.Request) error) (longcall.Ending, bool) {
	show, steps := store.ShowOperation{OperationID: w.operation}, store.LoadSteps{OperationID: w.operation}
	if err := ask(ctx, &show, &steps); err != nil {
		return w.unavailable(ctx, err), true
	}
	switch {
	case !show.Found || show.State != store.OperationUndone:
		return longcall.Ending{}, false
	case show.Cancelled:
		return longcall.Ending{Outcome: longcall.Failed, Err: ErrCancelled}, true
	case len(steps.Steps) > 0 && steps.Steps[len(steps.Steps)-1].Kind == store.EndStep:
		return longcall.Ending{Outcome: longcall.Failed, Err: w.endOnRecord(steps.Steps[len(steps.Steps)-1])}, true
	}
	return longcall.Ending{Outcome: longcall.Failed, Err: &endedError{cause: ErrUndone}}, true
}

// endOnRecord returns the error that is on record of the end.
func (w *work) endOnRecord(s store.Step) error {
	stored, err := open(w.call.Sealer(), s.Value, store.BoundStep(w.operation, &s))
	if err != nil {
		return err
	}
	ended, err := decodeFailure(w.definition.known, stored)
	if err != nil { // the code no longer names it
		return &endedError{cause: ErrUndone}
	}
	return &endedError{cause: ofFunction(ended)}
}
