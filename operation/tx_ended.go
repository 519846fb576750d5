package operation

import (
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// txEnded ends a run in which a fn has ended the transaction: that of s, or one that is not known. What the Tx since the last commit have
// written may be committed without the memory of it, and another run would write it again. So the operation is parked; before anything of it
// is on record, the record of its key shows the same, as behind idem.Do.
func (op *Op) txEnded(err error, s *step) error {
	if op.work.epoch == 0 {
		return op.halt(broken, err)
	}
	written := "its steps"
	if steps := op.unsaved(s); len(steps) > 0 {
		written = named(steps)
	}
	return op.parkFor(err, "the fn of a step has ended the transaction, and what %s wrote may be committed, and is not on record: "+
		"take it back by hand, and Retry with a fn that does not, or Cancel", written)
}

// unsaved returns the steps that have run in the transaction, and s, which has not come to an end.
func (op *Op) unsaved(s *step) (steps []store.Step) {
	for i := range op.pending {
		p := op.pending[i].Step
		if p.Kind == store.TxStep && p.Outcome == store.StepDone || p.Kind == store.UndoTxStep && p.Outcome == store.StepUndone {
			steps = append(steps, p)
		}
	}
	if s != nil {
		steps = append(steps, store.Step{Seq: s.seq, Kind: s.kind, Name: s.name})
	}
	return steps
}

// lacksSavepoint reports whether a statement about the savepoint was refused because the transaction is another one, or has ended.
func lacksSavepoint(err error) bool { return txn.HasCode(err, "3B001", "25P01") }
