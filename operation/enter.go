package operation

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// enter begins a step, after which leave must follow if there is no error.
func (op *Op) enter(kind store.StepKind, name string) (*step, error) {
	if !op.taking.TryLock() {
		return nil, fmt.Errorf("%w: step %q", ErrMisused, name)
	}
	s, err := op.find(kind, name)
	if err != nil {
		op.taking.Unlock()
	}
	return s, err
}

func (op *Op) leave() { op.taking.Unlock() }

// inStep does what a step does once it is entered.
func inStep[T any](op *Op, name string, take func() (T, error)) (T, error) {
	defer op.leave()
	return whole(op, name, take)
}

// find tells what is on record of the step that comes next.
func (op *Op) find(kind store.StepKind, name string) (*step, error) {
	if op.over {
		return nil, fmt.Errorf("%w: step %q", ErrMisused, name)
	}
	if err := op.halted(); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, op.halt(broken, err)
	}
	if op.ctx.Err() != nil {
		return nil, op.interrupted()
	}
	op.seq++
	s := &step{seq: op.seq, kind: kind, name: op.numbered(kind, name)}
	recorded, ok := op.work.recorded[s.seq]
	if ok && recorded.Kind == kind {
		op.current = recorded.Name
	} else {
		op.current = s.name
	}
	switch {
	case ok && (recorded.Kind != kind || recorded.Name != s.name):
		op.current = recorded.Name
		return nil, op.park("the code has changed: step %d is recorded as %s %q, and the code asks for %s %q", s.seq, recorded.Kind, recorded.Name, kind, s.name)
	case ok && op.work.cancelled && op.work.pauses(&recorded): // no caller waits any longer
		return nil, op.halt(ended, nil)
	case ok && recorded.Outcome == store.StepNotSent && !op.grouped && (op.work.undoing || op.work.cancelled):
		return nil, op.halt(ended, nil)
	case ok && op.work.replays && !op.grouped && op.work.isUnderWay(&recorded):
		return nil, op.halt(suspended, nil)
	case ok && (recorded.Outcome == store.StepBegun || recorded.Outcome == store.StepNotSent): // its end is still to be found out
	case ok:
		s.found = &recorded
	case op.grouped: // Wait looks at all of them
	case op.work.undoing, op.work.replays, op.work.cancelled && !op.leadsBack(kind):
		op.seq--
		return nil, op.halt(ended, nil)
	}
	return s, nil
}

// pauses reports whether the operation has come no further than this pause, as far as it is on record.
func (w *work) pauses(s *store.Step) bool {
	if s.Outcome != store.StepWaiting || s.Kind == store.ChildStep { // a child is settled
		return false
	}
	if w.undoing { // what was begun since is an undo
		return s.Kind == store.AwaitStep || w.until(s.DueAt) > 0
	}
	return w.at.Seq == s.Seq
}

// isUnderWay reports whether it is not on record what has come of a step.
func (w *work) isUnderWay(s *store.Step) bool {
	return s.Outcome == store.StepBegun || s.Outcome == store.StepNotSent || s.Outcome == store.StepWaiting && s.Seq == len(w.recorded)
}

// since returns what tells how long ago a moment of the database's clock was.
func (w *work) since(begun time.Time) func() time.Duration {
	return func() time.Duration { return -w.until(begun) }
}

// until returns how long it is until a moment of the database's clock.
func (w *work) until(due time.Time) time.Duration {
	return due.Sub(w.loadedAt) - time.Since(w.loaded)
}

// leadsBack reports whether a cancelled operation takes a step that is not on record: what says how to undo, and what lies between a
// step that is done for good and its undo, as far as it is in Postgres.
func (op *Op) leadsBack(kind store.StepKind) bool {
	switch kind {
	case store.UndoStep, store.UndoTxStep:
		return true
	case store.TxStep:
		return len(op.unbacked(false)) > 0 && !op.work.accepted
	}
	return false
}
