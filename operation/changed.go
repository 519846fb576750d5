package operation

import "github.com/idem-go/idem/internal/store"

// Changed tells which code an operation follows, where the code has changed while operations were under way. It is false for
// an operation that has come past this point without it, and true, from then on and in every run, for any other:
//
//	if op.Changed("fraud check") {
//		… = operation.Call(op, "fraud check", …)
//	}
//
// A call that was begun and has no answer is on record like a step that has ended: Changed is false in front of it. A recorded step
// that the code no longer asks for, at its place and by its name, parks the operation.
//
// It cannot return an error. With an invalid name, by two goroutines at once or inside of a step, it ends the run: no further step
// is taken, and whatever the function returns, the error is ErrInvalidName or ErrMisused.
func (op *Op) Changed(name string) bool {
	if !op.taking.TryLock() {
		op.misused.Store(true)
		return false
	}
	defer op.taking.Unlock()
	next := op.seq + 1
	recorded, ok := op.work.recorded[next]
	err := checkName(name)
	switch {
	case op.over:
		op.misused.Store(true)
		return false
	case op.halted() != nil:
		return false
	case err != nil:
		_ = op.halt(broken, err)
		return false
	case ok && recorded.Kind == store.ChangedStep && recorded.Name == name:
		op.seq = next
		return true
	case ok, op.work.undoing:
		return false
	}
	op.seq = next
	if op.work.replays {
		return true
	}
	op.remember(&step{seq: next, kind: store.ChangedStep, name: name}, store.StepDone, nil)
	return true
}
