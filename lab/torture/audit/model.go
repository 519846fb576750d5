package audit

import (
	"maps"
	"slices"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/model"
	"github.com/idem-go/idem/lab/torture/rule"
)

// This file checks the moves of an operation, which are the commits that changed its row. They are
// accepted if some behavior of the specification model.Operations changes the row in the same way.
// Between two moves, the specification may take steps that do not change the row, such as those of
// the function. Only the process that claimed the operation in the current epoch can commit. A
// state therefore has that process in slot 0, and all others in slot 1.

var spec = model.Operations{Crashes: 1 << 30}

// shown is the part of an operation's row that is compared: a logged change of the row (a move)
// must show the same as a step of the specification.
type shown struct {
	state           uint8
	owned, canceled bool
	next            bool // the move begins a new epoch
}

var states = map[string]uint8{
	"running": model.Active, "parked": model.Parked, "completed": model.Ended, "failed": model.Undone, "undone": model.Undone,
}

// writes are the actions of the specification that change the row.
var writes = map[model.Action]bool{
	"Commit": true, "TakeOver": true, "Disown": true, "Park": true, "Release": true,
	"Checkpoint": true, "BeginCharge": true, "Cancel": true, "Resolve": true,
}

// passage is a step of the specification that can follow a state, directly or after steps that the
// row does not show. The field steps counts all of them.
type passage struct {
	model.Step
	to    model.OpState
	shows shown
	steps int
}

// passages caches the passages that can follow each state. There are only a few hundred states.
type passages map[model.OpState][]passage

// accept returns the smallest number of steps of the specification that explain the moves. It
// returns 0 if the first moves are missing. If no steps explain the moves, it adds a violation and
// returns 0.
func (b *book) accept(o *operation) int {
	if len(o.moves) == 0 || o.moves[0].Epoch != 1 || o.moves[0].Attempts != 0 || o.moves[0].State != "running" {
		return 0 // the creation of the operation is missing
	}
	possible := map[model.OpState]int{{}: 0}
	claimant, before := o.moves[0].By, &journal.Move{}
	for _, m := range o.moves {
		wanted := shown{states[m.State], m.Owner != 0, m.Canceled, m.Epoch == before.Epoch+1}
		slot := 1
		if m.By == claimant {
			slot = 0
		}
		next := map[model.OpState]int{}
		for s, steps := range possible {
			for _, p := range b.passages.from(s) {
				person := p.Action == "Cancel" || p.Action == "Resolve"
				if writes[p.Action] && p.shows == wanted && (person || p.Actor == slot) {
					to := normal(p.to, p.Step)
					if known, ok := next[to]; !ok || steps+p.steps < known {
						next[to] = steps + p.steps
					}
				}
			}
		}
		if possible = next; len(possible) == 0 || !wanted.next && m.Epoch != before.Epoch {
			b.violates(o, rule.Epoch, "%v cannot move it from %+v to %+v", process(m.By), *before, *m)
			return 0
		}
		if wanted.next && wanted.owned { // m claims the operation
			claimant = m.By
		}
		before = m
	}
	return slices.Min(slices.Collect(maps.Values(possible)))
}

// from returns the passages that can follow the state start.
func (known passages) from(start model.OpState) []passage {
	if found, ok := known[start]; ok {
		return found
	}
	show := func(s model.OpState, epoch uint8) shown {
		op := s.Ops[0]
		return shown{op.State, op.Owner != 0, op.Canceled, op.Epoch != epoch}
	}
	var found []passage
	seen := map[model.OpState]int{start: 0}
	for level := []model.OpState{start}; len(level) > 0; {
		from := level[0]
		level = level[1:]
		spec.Next(from, func(step model.Step, to model.OpState) {
			to.Crashed = 0
			if to.Ops[1].State != model.Absent || to.Procs[0].Op+to.Procs[1].Op+to.Procs[2].Op > 0 || to.Procs[2].Stage != model.Resting {
				return // the checker needs no second operation and no third process
			}
			shows := show(to, from.Ops[0].Epoch)
			found = append(found, passage{step, to, shows, seen[from] + 1})
			if _, known := seen[to]; !known && shows == show(from, from.Ops[0].Epoch) {
				seen[to] = seen[from] + 1
				level = append(level, to)
			}
		})
	}
	known[start] = found
	return found
}

// normal returns an equivalent state with the claiming process in slot 0 and the epoch 1.
func normal(s model.OpState, step model.Step) model.OpState {
	op := &s.Ops[0]
	if step.Action == "TakeOver" && step.Actor == 1 {
		s.Procs[0], s.Procs[1], op.Owner = s.Procs[1], model.Process{}, 1
	}
	if s.Procs[0].Epoch != op.Epoch {
		s.Procs[0] = model.Process{}
	}
	s.Procs[1] = model.Process{}
	if s.Procs[0].Stage != model.Resting {
		s.Procs[0].Epoch = 1
	}
	op.Epoch = 1
	return s
}
