package operation

import "github.com/idem-go/idem/internal/store"

// Changed tells which code an operation follows, where the code has changed while operations were under way. It is false for
// an operation that has come past this point without it, and true, from then on and in every run, for any other:
//
//	if op.Changed("fraud check") {
//		… = operation.Call(op, "fraud check", …)
//	}
//
// A recorded step that the code no longer asks for, at its place and by its name, parks the operation.
func (op *Op) Changed(name string) bool {
	if !op.taking.TryLock() {
		return false
	}
	defer op.taking.Unlock()
	next := op.seq + 1
	recorded, ok := op.work.recorded[next]
	switch {
	case op.over, op.stopped != nil, checkName(name) != nil:
		return false
	case ok && recorded.Kind == store.ChangedStep && recorded.Name == name:
		op.seq = next
		return true
	case ok, op.work.undoing:
		return false
	}
	op.seq = next
	op.remember(&step{seq: next, kind: store.ChangedStep, name: name}, store.StepDone, nil)
	return true
}
