package operation

import "github.com/idem-go/idem/internal/store"

// What an undo takes back: the steps between the undo before it and itself, or, if it takes nothing back there, those that follow.

// known returns what this run knows of a step.
func (op *Op) known(seq int) store.Step {
	for i := range op.pending {
		if op.pending[i].Step.Seq == seq {
			return op.pending[i].Step
		}
	}
	return op.work.recorded[seq]
}

// reach is what has come of the steps, Tx, Call and Child, in some places.
type reach struct {
	lasting    bool // some are done, and cannot be rolled back
	pending    bool // some are done, and are not committed
	rolledBack bool
	failed     bool
}

func (r *reach) empty() bool { return *r == reach{} }

func (r *reach) add(op *Op, s store.Step) {
	if !isTakenBack(s.Kind) {
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
func (op *Op) between(from, to int) (r reach) {
	for seq := from; seq < to; seq++ {
		r.add(op, op.known(seq))
	}
	return r
}

// ahead returns what has come of the steps that follow u, up to the next undo that has a step before it, and whether there is one.
// Of an undo that stands behind a step that has failed, only what it could take back counts, as u.takesBack tells.
func (op *Op) ahead(u *undo, failed bool) (r reach, closed bool) {
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

// isSecond reports whether the ith undo, right behind others, is for the same steps: for what the others, being of another kind, do not
// take back.
func (op *Op) isSecond(i int) bool {
	u := &op.undos[i]
	for j := i - 1; j >= 0 && op.undos[j].covers == u.covers; j-- {
		if (op.undos[j].tx == nil) == (u.tx == nil) {
			return false
		}
	}
	return op.isBehindItsKind(u)
}

// isAhead reports whether an undo was registered before what it takes back: no step is between it and the undo before it, and it takes back
// none with that one, or only such as have failed, and that the undo before it was registered ahead of.
func (op *Op) isAhead(u *undo) bool {
	ahead, from := true, 1
	for i := range op.undos {
		covers, at := op.undos[i].covers, op.undos[i].step.seq
		if behind := op.between(from, at); behind.empty() { // right behind others, it may be for what they take back
			shared := op.between(covers, at)
			ahead = shared.empty() || op.undos[i].tx == nil && !op.isSecond(i)
		} else {
			ahead = behind == (reach{failed: true}) && i > 0 && ahead
		}
		if at == u.step.seq {
			return ahead
		}
		from = at + 1
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

// unbacked returns a call that has happened, or a child that has completed, and that no undo takes back for sure: one behind the last undo.
// If that was registered ahead, it is for the first call that follows it, and the undo of another one may still be to come.
func (op *Op) unbacked() (call store.Step, is bool) {
	from, spared := 1, false
	if n := len(op.undos); n > 0 {
		last := &op.undos[n-1]
		from, spared = last.step.seq+1, op.isAhead(last)
	}
	for seq := from; seq <= op.seq; seq++ {
		s := op.known(seq)
		switch {
		case s.Kind != store.CallStep && s.Kind != store.ChildStep:
		case spared:
			spared = op.pairs[seq] // one that is made together with the next one
		case s.Outcome == store.StepDone:
			return s, true
		}
	}
	return store.Step{}, false
}
