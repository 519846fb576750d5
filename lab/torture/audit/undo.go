package audit

import (
	"encoding/json"
	"slices"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkUndos checks which undos ran. An undo must run if and only if its step is recorded as done
// and the operation ends in a rejection, in a Final error, or by Cancel. The undos of different
// steps run in the reverse order of the steps. The undos of one step run in the reverse order of
// their registration. Each undo runs once and gets the value of its step.
func (b *book) checkUndos(o *operation) {
	b.checkNumbers(o)
	ran := slices.DeleteFunc(o.doings(), func(d doing) bool { return journal.Undone(d.step) == "" })
	wanted := o.wanted()
	for _, undo := range wanted {
		if !undo.optional && !slices.ContainsFunc(ran, func(d doing) bool { return d.step == undo.name }) && o.hasEnded() {
			b.violates(o, rule.UndoneOnce, "%s has not run", undo.name)
		}
	}
	last := -1
	seen := map[string]bool{}
	for _, d := range ran {
		at := slices.IndexFunc(wanted, func(u wantedUndo) bool { return u.name == d.step })
		switch {
		case at < 0:
			b.violates(o, rule.UndoneOnce, "%s has run", d.step)
			return
		case seen[d.step]:
			b.violates(o, rule.UndoneOnce, "%s has run again", d.step)
		// The order is not judged if releases differ in their undos: a later release may run an
		// undo that the first one lacks.
		case at < last && !o.plan.ChangesUndos():
			b.violates(o, rule.UndoneOrder, "%s has run behind %s", d.step, wanted[last].name)
		case d.given != wanted[at].value && wanted[at].value != "":
			b.violates(o, rule.UndoneValue, "%s was given %q, and its step has %q", d.step, d.given, wanted[at].value)
		}
		last, seen[d.step] = at, true
	}
	b.checkLast(o, ran)
}

// wantedUndo is an undo that has to run, or that may run if it is optional.
type wantedUndo struct {
	name     string
	value    string // the value of its step; not compared if ""
	optional bool   // see mayLeave
}

// wanted returns the undos that have to run or may run, in the order in which they have to run.
func (o *operation) wanted() (undos []wantedUndo) {
	isUndone := o.row.State == "failed" || o.row.State == "undone" || !o.hasEnded() && (o.row.Undoing || o.row.Canceled)
	for _, s := range slices.Backward(o.steps) { // the last step first
		if !isUndone || s.Kind == "undo" || !isDone(s.Outcome) {
			continue
		}
		for index := s.Undos - 1; index >= 0; index-- {
			undo := wantedUndo{name: journal.UndoOf(s.Name, index), optional: index < s.Undos-1 && o.mayLeave(s.Name)}
			if s.Kind == "tx" || s.Kind == "call" {
				_ = json.Unmarshal([]byte(s.Value), &undo.value)
			}
			undos = append(undos, undo)
		}
	}
	return undos
}

// mayLeave reports whether an undo of a step may be left out although a later undo of the step has
// run: the operation was canceled WithoutCode, and a person may have resolved the undo in doubt as
// not made. Code that does not have the undo then does not make it.
func (o *operation) mayLeave(step string) bool {
	return o.row.WithoutCode && slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.State == "parked" && m.Reason == callInDoubt && m.Kind == "undo" && m.ReasonStep == step
	})
}

// checkNumbers checks that the recorded number of undos of each done step is the number that the
// code of some release gives it.
func (b *book) checkNumbers(o *operation) {
	// With WithoutCode, a person may have ended the operation without the undos of some steps.
	if o.row.WithoutCode {
		return
	}
	for _, s := range o.steps {
		if s.Kind == "undo" || !isDone(s.Outcome) {
			continue
		}
		if !slices.ContainsFunc(o.known[:], func(steps map[string]int) bool { return steps[s.Name] == s.Undos }) {
			b.violates(o, rule.UndoneOnce, "%s is recorded with %d undos, which no release gives it", s.Name, s.Undos)
		}
	}
}

// checkLast checks that no step was done after the first undo had run.
func (b *book) checkLast(o *operation, undos []doing) {
	if len(undos) == 0 {
		return
	}
	for _, d := range o.doings() {
		if journal.Undone(d.step) == "" && d.at > undos[0].at {
			b.violates(o, rule.UndoneLast, "%s was done at %v, and %s had run at %v", d.step, d.at-b.options.Start, undos[0].step, undos[0].at-b.options.Start)
			return
		}
	}
}

// checkCanceled checks that a canceled operation begins no further calls. A call that was begun
// before the cancellation may be repeated, and undos may call the bank later.
func (b *book) checkCanceled(o *operation) {
	i := slices.IndexFunc(o.moves, func(m *journal.Move) bool { return m.Canceled })
	if i < 0 {
		return
	}
	m := o.moves[i]
	for _, e := range o.entries {
		outcome := m.Known[e.Step]
		isBegun := outcome != "" && outcome != "not sent" || m.Kind == "call" && m.Step == e.Step
		if journal.Undone(e.Step) == "" && e.At > m.At+clocks && !isBegun {
			b.violates(o, rule.Canceled, "the bank was asked for %s at %v, and the operation was canceled at %v", e.Step, e.At-b.options.Start, m.At-b.options.Start)
			return
		}
	}
}

// hasEnded reports whether the operation has an outcome.
func (o *operation) hasEnded() bool { return o.row.State != "running" && o.row.State != "parked" }

func isDone(outcome string) bool { return outcome == "done" || outcome == "resolved" }

func (o *operation) isDone(step string) bool { return isDone(o.outcome(step)) }

// isCharged reports whether a charge of round n is recorded as done, with card A or card B, in any
// release.
func (o *operation) isCharged(n int) bool {
	round := &o.plan.Rounds[n-1]
	for release := range journal.Releases {
		if charge := round.ChargeIn(release, n); charge != "" && o.isDone(charge) {
			return true
		}
	}
	return o.isDone(round.Card(n))
}
