package check

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// The model of a key is as simple as the promise: it has a live record or none. A state is the index of the execution
// whose record is the key's last, or nothing.
const nothing = -1

// step is what one answer says of the state.
type step struct {
	kind     stepKind
	x        *execution // that was written or read
	payload  string     // of the request that was refused
	created  int64      // of the record that a mismatch told of
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

// after returns the states that the key can be in after the step, none if the step cannot happen in that state.
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

// told reports whether a mismatch can have told of this record.
func (k *key) told(state int, created int64) bool {
	x := k.executions[state]
	return x.created == 0 || x.created == created
}

// steps are the answers that say something of the state. Errors say nothing: that they left nothing is a rule.
func (k *key) steps() []*step { return append(k.writes(), essential(k.reads())...) }

// writes are the executions. One whose call never returned can be put at the end of everything, where nothing is said of
// it: that is as good as if it had not happened.
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

// linearize looks for an order of the steps in which each is right. It reports false if it did not come to an end.
func (k *key) linearize() (complete bool) {
	steps := k.steps()
	switch k.order(steps) {
	case porcupine.Unknown:
		return false
	case porcupine.Illegal:
		var calls []*history.Operation
		for _, s := range k.minimal(steps) {
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
	return porcupine.CheckOperationsTimeout(k.model(steps), operations, k.options.patience())
}

// model is the deterministic one if that suffices, which is much faster.
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
