package operation

import "github.com/idem-go/idem/internal/store"

// What an undo takes back: the steps between the undo before it and itself, or, if there are none, those that follow. Undos right behind one
// another take back the same steps.

// known returns what this run knows of a step.
func (op *Op) known(seq int) store.Step {
	for i := range op.pending {
		if op.pending[i].Step.Seq == seq {
			return op.pending[i].Step
		}
	}
	return op.work.recorded[seq]
}

// takenBack is what has come of the steps, Tx, Call and Child, in some places.
type takenBack struct {
	lasting    bool // some are done, and cannot be rolled back
	pending    bool // some are done, and are not committed
	rolledBack bool
	failed     bool
}

func (r *takenBack) empty() bool { return *r == takenBack{} }

// isLeft reports whether a person has accepted that the step in this place is left as it is.
func (w *work) isLeft(seq int) bool { return w.leftFrom > 0 && seq >= w.leftFrom }

func (r *takenBack) add(op *Op, s store.Step) {
	if !isTakenBack(s.Kind) || op.work.isLeft(s.Seq) {
		return
	}
	_, committed := op.work.recorded[s.Seq]
	switch {
	case s.Outcome == store.StepFailed:
		r.failed = true
	case s.Outcome == store.StepRolledBack:
		r.rolledBack = true
	case s.Outcome == store.StepDone && (committed || s.Kind != store.TxStep):
		r.lasting = true
	case s.Outcome == store.StepDone:
		r.pending = true
	}
}

// between returns what has come of the places from, and before to.
func (op *Op) between(from, to int) (r takenBack) {
	for seq := from; seq < to; seq++ {
		r.add(op, op.known(seq))
	}
	return r
}

// ahead returns what has come of the steps that follow u, up to the next undo that has a step before it, and whether there is one.
// Of an undo that stands behind a step that has failed, only what it could take back counts, as u.takesBack tells.
func (op *Op) ahead(u *undo, failed bool) (r takenBack, closed bool) {
	tried := false
	for seq := u.step.seq + 1; seq <= op.seq; seq++ {
		s := op.known(seq)
		switch s.Kind {
		case store.UndoStep, store.UndoTxStep:
			if tried {
				return r, true
			}
		case store.TxStep, store.CallStep, store.ChildStep:
			tried = true
			if !failed || u.takesBack(s.Kind) {
				r.add(op, s)
			}
		}
	}
	return r, false
}

// isNeeded reports whether an undo has something to take back. What is to be rolled back was rolled back.
func (op *Op) isNeeded(u *undo) bool {
	behind := op.between(u.covers, u.step.seq)
	if behind.lasting || behind.rolledBack {
		return behind.lasting
	}
	own := behind.failed && !op.isAhead(u) // it is the undo of a step that failed
	if own && op.isBehindItsKind(u) {
		return false
	}
	next, closed := op.ahead(u, own)
	return next.lasting && !(own && closed) // what follows has an undo of its own
}

// isTakenBack reports whether a step of that kind is one for an undo to take back.
func isTakenBack(kind store.StepKind) bool {
	return kind == store.TxStep || kind == store.CallStep || kind == store.ChildStep
}

// takesBack reports whether an undo could take a step of that kind back: Undo a Call, UndoTx a Tx, and both a Child.
func (u *undo) takesBack(kind store.StepKind) bool {
	return kind == store.ChildStep || kind == store.CallStep && u.tx == nil || kind == store.TxStep && u.tx != nil
}

// isBehindItsKind reports whether there is, among the steps that an undo stands behind, one that it could take back.
func (op *Op) isBehindItsKind(u *undo) bool {
	for seq := u.covers; seq < u.step.seq; seq++ {
		if u.takesBack(op.known(seq).Kind) {
			return true
		}
	}
	return false
}

// isAhead reports whether an undo was registered before what it takes back: it stands behind no step, or behind such as have failed, which have
// another undo: the one before them, which was registered ahead, or one of the same kind right before it. One right behind another of another kind
// takes back the same steps, if there are any.
func (op *Op) isAhead(u *undo) bool {
	ahead := false
	for i := range op.undos {
		covers, at := op.undos[i].covers, op.undos[i].step.seq
		second := i > 0 && covers == op.undos[i-1].covers
		behind := op.between(covers, at)
		ahead = behind.empty() || behind == (takenBack{failed: true}) && (ahead && !second || op.hasTwin(i))
		if at == u.step.seq {
			return ahead
		}
	}
	return false
}

// hasTwin reports whether an undo of the same kind stands before this one, with no step between them.
func (op *Op) hasTwin(i int) bool {
	u := &op.undos[i]
	for j := i - 1; j >= 0 && op.undos[j].covers == u.covers; j-- {
		if (op.undos[j].tx == nil) == (u.tx == nil) {
			return true
		}
	}
	return false
}

// isMixed reports whether some of these places is done for good, and some can be rolled back.
func (op *Op) isMixed(from, to int) bool {
	r := op.between(from, to)
	return r.lasting && r.pending
}

// isMixedAhead reports the same of what follows an undo that takes nothing back behind it, as the last one.
func (op *Op) isMixedAhead() bool {
	for i := range op.undos {
		u := &op.undos[i]
		behind := op.between(u.covers, u.step.seq)
		if behind.lasting || behind.pending || behind.rolledBack {
			continue
		}
		own := behind.failed && !op.isAhead(u)
		if own && op.isBehindItsKind(u) {
			continue
		}
		if next, closed := op.ahead(u, own); !closed && next.lasting && next.pending {
			return true
		}
	}
	return false
}

// unbacked returns what a cancelled operation has done for good and no undo takes back for sure: the calls that have happened, and the children
// that have completed, behind the last undo. If that was registered ahead, it is for the first call that follows it, and the undo of another one may
// still be to come. Of a Tx that is committed there the undo may be to come, too, unless the function has ended: then it has none.
func (op *Op) unbacked(ended bool) (left []store.Step) {
	from, ahead := 1, false
	if n := len(op.undos); n > 0 {
		last := &op.undos[n-1]
		from, ahead = last.step.seq+1, op.isAhead(last)
	}
	for seq, spared := from, ahead; seq <= op.seq; seq++ {
		s := op.known(seq)
		_, committed := op.work.recorded[seq]
		switch {
		case s.Kind == store.TxStep:
			if s.Outcome == store.StepDone && committed && !ahead && !ended {
				left = append(left, s)
			}
		case s.Kind != store.CallStep && s.Kind != store.ChildStep:
		case spared:
			spared = op.pairs[seq] // one that is made together with the next one
		case s.Outcome == store.StepDone:
			left = append(left, s)
		}
	}
	return left
}
