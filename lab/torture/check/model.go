package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// The state of the model is the index of the execution whose record the key has, or nothing.
const nothing = -1

// step is what one answer implies about the state.
type step struct {
	kind     stepKind
	x        *execution // written or read
	payload  string     // of the refused request
	created  int64      // creation time of the record that a mismatch reported
	call     *history.Operation
	from, to time.Duration
}

type stepKind int

const (
	write stepKind = iota
	read
	refuse
	lose // a failover
)

// after returns the states that the key can be in after the step. It returns none if the step
// cannot happen in that state.
//
// A write needs a key without a live record. A read needs the record of its execution, a refuse a
// record with another payload. A lose, which is a failover, may lead back to any earlier record.
func (k *key) after(state int, s *step) []int {
	switch s.kind {
	case write:
		if state == nothing || !k.executions[state].overlaps(s.x) || k.clockUncertain(k.executions[state], s.x) || k.purgedAhead(k.executions[state]) {
			return []int{s.x.index}
		}
	case read:
		if state == s.x.index {
			return []int{state}
		}
	case refuse:
		if state != nothing && k.executions[state].payload != s.payload && k.told(state, s.created) {
			return []int{state}
		}
	case lose:
		states := []int{nothing, state}
		for _, x := range k.executions {
			if len(x.effects) > 0 || x.record != nil || x.purged || x.rejected {
				states = append(states, x.index)
			}
		}
		return states
	}
	return nil
}

// told reports whether a mismatch that reported the creation time can have seen the record of the
// state.
func (k *key) told(state int, created int64) bool {
	x := k.executions[state]
	return x.created == 0 || x.created == created
}

// steps returns the answers that imply something about the state. Errors imply nothing here: that
// they committed nothing is checked by checkLeftNothing.
func (k *key) steps() []*step { return append(k.writes(), essential(k.reads())...) }

// writes returns the executions and the failovers. An execution whose call never returned has no
// end: porcupine may order it after all reads, which is equivalent to not executing it.
func (k *key) writes() []*step {
	var steps []*step
	for _, x := range k.executions {
		s := &step{kind: write, x: x, call: x.maker, to: history.Forever}
		if x.maker != nil {
			s.from = x.maker.Begin
			if x.maker.Outcome == history.Executed {
				s.to = x.maker.End
			}
		}
		steps = append(steps, s)
	}
	for _, loss := range k.options.Losses {
		steps = append(steps, &step{kind: lose, from: loss.From - lag, to: loss.To})
	}
	return steps
}

// reads returns the replays and the mismatches. A read begins with its leader, because a call may
// share an answer that an earlier call of its process got.
func (k *key) reads() []*step {
	var reads []*step
	for _, o := range k.operations {
		s := &step{payload: o.Payload, call: o, from: k.leader(o).Begin, to: o.End}
		switch o.Outcome {
		case history.Replayed:
			s.kind, s.x = read, k.byID[o.ExecutionID]
		case history.Mismatch:
			s.kind, s.created = refuse, o.Created
		default:
			continue
		}
		reads = append(reads, s)
	}
	return reads
}

// essential removes redundant reads. A read is redundant if another read of the same kind saw the
// same and its interval lies within the interval of the first: every order that suits the shorter
// interval suits the longer one.
func essential(reads []*step) []*step {
	slices.SortStableFunc(reads, func(a, b *step) int {
		return cmp.Or(cmp.Compare(a.to, b.to), -cmp.Compare(a.from, b.from))
	})
	type seen struct {
		kind    stepKind
		x       *execution
		payload string
		created int64
	}
	latest := make(map[seen]*step) // of the kept reads, which end no later
	var kept []*step
	for _, s := range reads {
		what := seen{s.kind, s.x, s.payload, s.created}
		if other := latest[what]; other != nil && other.from >= s.from {
			continue
		}
		latest[what] = s
		kept = append(kept, s)
	}
	return kept
}

// linearize searches an order of the steps in which each is right, and adds a violation if there is
// none. It returns false if the search timed out.
func (k *key) linearize() (complete bool) {
	steps := k.steps()
	switch k.order(steps) {
	case porcupine.Unknown:
		return false
	case porcupine.Illegal:
		var calls []*history.Operation
		for _, s := range steps {
			calls = append(calls, s.call)
		}
		k.violate(rule.Order, "there is none for these", calls...)
	}
	return true
}

func (k *key) order(steps []*step) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		operations[i] = porcupine.Operation{ClientId: i, Input: s, Call: int64(s.from), Return: int64(s.to)}
	}
	return porcupine.CheckOperationsTimeout(k.model(steps), operations, cmp.Or(k.options.Patience, patience))
}

// model returns the deterministic model if no failover lost commits, because it is much faster.
func (k *key) model(steps []*step) porcupine.Model {
	for _, s := range steps {
		if s.kind == lose {
			return k.nondeterministic()
		}
	}
	return porcupine.Model{
		Init: func() any { return nothing },
		Step: func(state, input, _ any) (bool, any) {
			next := k.after(state.(int), input.(*step))
			if len(next) == 0 {
				return false, state
			}
			return true, next[0]
		},
		Hash: func(state any) uint64 { return uint64(state.(int) - nothing) },
	}
}

func (k *key) nondeterministic() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{nothing} },
		Step: func(state, input, _ any) []any {
			var states []any
			for _, next := range k.after(state.(int), input.(*step)) {
				states = append(states, next)
			}
			return states
		},
		Hash: func(state any) uint64 { return uint64(state.(int)-nothing+1) * (math.MaxUint64 / 59) },
	}
	return model.ToModel()
}

// patience is the default of Options.Patience.
const patience = 10 * time.Second
