package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// violates adds a violation for an operation, with everything that is known of the operation.
func (b *book) violates(o *operation, r rule.Rule, format string, args ...any) {
	v := rule.Violation{Rule: r, Scope: "operation " + o.id, Detail: fmt.Sprintf(format, args...)}
	line := func(what any) { v.History = append(v.History, fmt.Sprintf("%+v", what)) }
	if o.row != nil {
		v.Key = o.row.Key
		line(*o.row)
	}
	for _, s := range o.steps {
		line(*s)
	}
	for _, m := range o.moves {
		line(*m)
	}
	for _, e := range slices.Concat(o.heard, o.unsent, o.saw) {
		line(e)
	}
	for _, e := range o.entries {
		line(e)
	}
	for _, r := range o.runs {
		line(r)
	}
	b.found = append(b.found, v)
}

// doing is an effect of a step or an undo, at the bank or in Postgres.
type doing struct {
	step, value string
	given       string // value that an undo got from the step that it undoes
	at          time.Duration
}

// doings returns all effects in the order of their times.
func (o *operation) doings() []doing {
	var all []doing
	for step, effects := range o.effects {
		for _, e := range effects {
			all = append(all, doing{step, e.Nonce, e.Given, e.At})
		}
	}
	for step, entries := range o.booked {
		for _, e := range entries {
			all = append(all, doing{step, e.Receipt, e.Given, e.At})
		}
	}
	slices.SortFunc(all, func(a, b doing) int { return int(a.at - b.at) })
	return all
}

func (b *book) audit(o *operation) {
	for step, entries := range o.booked {
		if len(entries) > 1 {
			b.violates(o, rule.CallOnce, "the bank has booked %s %d times", step, len(entries))
		}
	}
	for step, effects := range o.effects {
		if len(effects) > 1 {
			b.violates(o, rule.StepOnce, "%s was committed %d times", step, len(effects))
		}
	}
	// Without a row, the creation of the operation was not committed, so it must not have had any
	// effect.
	if o.row == nil {
		if len(o.entries) > 0 || len(o.children) > 0 || len(o.effects) > 0 || len(o.answers) > 0 {
			b.violates(o, rule.Durable, "it has called the bank %d times, has %d children, %d effects and %d answers, and is not there", len(o.entries), len(o.children), len(o.effects), len(o.answers))
		}
		return
	}
	// If the runs of the function took different branches, the other rules are broken too and are
	// not checked.
	if !b.checkSeen(o) {
		return
	}
	b.checkSteps(o)
	b.checkBegun(o)
	b.checkChildren(o)
	b.checkMoves(o)
	if o.row.State == "completed" {
		b.checkDone(o)
	}
	b.checkMade(o)
	b.checkUndos(o)
	b.checkCanceled(o)
	b.checkEnding(o)
	b.checkSignals(o)
	b.checkOwners(o)
}

// checkSteps compares the recorded steps with their effects. A Tx is recorded as done if and only
// if its row was committed, and its recorded value is the one that the Tx returned. A call that is
// recorded as done was booked with the recorded receipt.
func (b *book) checkSteps(o *operation) {
	for _, s := range o.steps {
		var value string
		_ = json.Unmarshal([]byte(s.Value), &value)
		done := s.Outcome == "done" || s.Outcome == "resolved"
		switch {
		case o.leavesNoTrace(s.Name):
		case s.Kind == "tx":
			effects := o.effects[s.Name]
			if done != (len(effects) > 0) || done && effects[0].Nonce != value {
				b.violates(o, rule.StepWhole, "%s is remembered as %s, with %q, and was committed %d times", s.Name, s.Outcome, value, len(effects))
			}
		case s.Kind == "call":
			if entries := o.booked[s.Name]; done && !slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Receipt == value }) {
				b.violates(o, rule.CallMade, "%s is remembered with %q, and the bank has booked it %d times", s.Name, value, len(entries))
			}
		}
	}
	for step := range o.effects {
		if !o.isRecorded(step) {
			b.violates(o, rule.StepWhole, "%s was committed, and is not remembered", step)
		}
	}
}

// leavesNoTrace reports whether the step neither writes a row nor calls the bank.
func (o *operation) leavesNoTrace(step string) bool {
	for i := range o.plan.Rounds {
		round, n := &o.plan.Rounds[i], i+1
		isCall := round.Day.Change == journal.PutInCall || round.Day.Change == journal.ChangedCall
		if step == round.Count(n) || isCall && step == round.PutIn(n) {
			return true
		}
	}
	return false
}

// checkDone checks that a completed operation did all the steps of its plan.
func (b *book) checkDone(o *operation) {
	for n, round := range o.plan.Rounds {
		n++
		// The Tx may have been done under its old or its new name. If the name did not change, both
		// lists have the same names, and every step is counted twice.
		taken := 0
		for _, name := range slices.Concat(round.ReserveIn(0, n), round.ReserveIn(journal.Releases-1, n)) {
			if o.isDone(name) {
				taken++
			}
		}
		if round.Day.Change != journal.RenamedReserve {
			taken /= 2
		}
		if want := len(round.ReserveIn(0, n)); taken != want {
			b.violates(o, rule.StepWhole, "it is completed, and has done %d of %d steps like %s", taken, want, round.Reserve(n))
		}
		if round.Call != "" && round.Day.Change != journal.TakenOut && !o.isCharged(n) {
			b.violates(o, rule.CallMade, "it is completed without %s", round.Charge(n))
		}
	}
	b.checkPaid(o)
}

// checkMade checks that every booking of an ended operation is recorded as done. If the operation
// ended with a rejection, each round before the rejection must have made its charge.
func (b *book) checkMade(o *operation) {
	if !o.hasEnded() {
		return
	}
	for step, entries := range o.booked {
		switch {
		case o.isDone(step):
		case o.outcome(step) == "":
			b.violates(o, rule.InDoubt, "the bank has booked %s at %v, and that is not recorded", step, entries[0].At-b.options.Start)
		case slices.ContainsFunc(o.unsent, func(u journal.Event) bool { return u.Name == step }):
			b.violates(o, rule.Unsent, "the bank has booked %s at %v, and it is recorded as %s", step, entries[0].At-b.options.Start, o.outcome(step))
		default:
			b.violates(o, rule.CallMade, "the bank has booked %s at %v, and it is recorded as %s", step, entries[0].At-b.options.Start, o.outcome(step))
		}
	}
	for n, round := range o.plan.Rounds {
		n++
		declined := o.plan.End == journal.Decline && n == len(o.plan.Rounds)
		if !o.row.Canceled && !declined && o.row.State == "failed" && round.Call != "" && round.Day.Change != journal.TakenOut && !o.isCharged(n) && !o.isRefused(n) {
			b.violates(o, rule.CallMade, "it has ended without %s", round.Charge(n))
		}
	}
}

// isRefused reports whether the function may have returned a rejection in one of the first n
// rounds: a charge is recorded as failed, or a child failed and the plan rejects in that case. A
// charge fails because the bank declined it or because a person resolved it as declined.
func (o *operation) isRefused(n int) bool {
	for ; n > 0; n-- {
		round := &o.plan.Rounds[n-1]
		rejects := round.Part.Then == journal.Rejected && (o.outcome(round.PartIn(0, n)) == "failed" || o.outcome(round.PartIn(journal.Releases-1, n)) == "failed")
		if o.outcome(round.Charge(n)) == "failed" || rejects {
			return true
		}
	}
	return false
}

// clocks is the tolerance for comparing a time of the database with a time of the bank.
const clocks = 20 * time.Millisecond

// checkBegun checks every call that reached the bank. The call must be recorded in the end, no step
// may have been inserted before it meanwhile, and all requests for the same purchase must have used
// one key.
func (b *book) checkBegun(o *operation) {
	first := map[string]journal.Entry{} // first request of each step
	keys := map[string]string{}         // key of the requests that pay for the same thing
	for _, e := range o.entries {
		if known, ok := first[e.Step]; !ok || e.At < known.At {
			first[e.Step] = e
		}
		if known, ok := keys[e.Place]; ok && known != e.Key && !o.isSettledAt(e.Place) {
			b.violates(o, rule.OneKey, "%s was asked for under the keys %s and %s", e.Place, known, e.Key)
		}
		keys[e.Place] = e.Key
	}
	for step, e := range first {
		// A call that the bank did not book needs no record if the operation was canceled: a person
		// may have resolved the call as not made.
		unwanted := o.row.Canceled && len(o.booked[step]) == 0
		if o.hasEnded() && !unwanted && !o.isRecorded(step) && !(o.isSettled(step) && len(o.booked[step]) == 0) {
			b.violates(o, rule.InDoubt, "the bank was asked for %s at %v, and that is not on record", step, e.At-b.options.Start)
		}
		if e.Refunds == "" && !o.isSettled(step) {
			b.checkFront(o, step, e.At)
		}
	}
}

// isSettled reports whether a person may have resolved the call as not made. The function then
// decides how to continue, so a record of the call is not required.
func (o *operation) isSettled(call string) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.State == "parked" && m.Reason == callInDoubt && m.ReasonStep == call
	})
}

// isFoundNotMade reports whether, between two times, the operation was released between two
// attempts at an Asked call that was not in doubt any more, because the bank had answered that it
// was not made. New code may then take another step before the next attempt. If the bank had booked
// the call by then, the answer was wrong, and isFoundNotMade returns false.
func (o *operation) isFoundNotMade(call string, from, until time.Duration) bool {
	policy, _, _, ok := o.policyOf(call)
	return ok && policy == journal.Asked && slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.State == "running" && m.Owner == 0 && m.Step == call && m.Kind == "" && from < m.At+clocks && m.At < until+clocks &&
			!slices.ContainsFunc(o.booked[call], func(e journal.Entry) bool { return e.At+clocks < m.At })
	})
}

// isSettledAt reports whether a person may have resolved, as not made, any call with this
// Entry.Place. The function may then pay for the same thing by another step, under another key.
func (o *operation) isSettledAt(place string) bool {
	return slices.ContainsFunc(o.entries, func(e journal.Entry) bool { return e.Place == place && o.isSettled(e.Step) })
}

// checkFront checks that no step was inserted before a call after the call had begun. The library
// must commit the position of a call before it sends the request.
func (b *book) checkFront(o *operation, call string, begun time.Duration) {
	for _, s := range o.steps { // the steps have the order of their sequence numbers
		switch {
		case s.Name == call, journal.Beside(s.Name) == call: // a parallel call begins in the same commit
			return
		case s.Kind != "tx" && s.Kind != "call" && s.Kind != "changed", s.Outcome == "rolled back":
		case s.Recorded > begun+clocks && !o.isFoundNotMade(call, begun, s.Recorded):
			b.violates(o, rule.InDoubt, "the bank was asked for %s at %v, and %s %s was put in front of it at %v", call,
				begun-b.options.Start, s.Kind, s.Name, s.Recorded-b.options.Start)
			return
		}
	}
}

// checkSeen checks that every run of a function sees the same value and the same error of a step.
// It reports whether all runs took the same branch.
//
// A worker logs "as it was: false" if a value differs from what the step returned, and "declined:
// false" if an error does not match the one that the step returned. Of the events about the value
// of a step, only the first one is judged.
func (b *book) checkSeen(o *operation) bool {
	same := true
	for _, e := range o.saw {
		switch {
		case e.Value == "as it was: false" && !o.sawOnce(e):
			b.violates(o, rule.SameValue, "%v saw of %s: %s", e.Op, e.Name, e.Value)
		case e.Value == "declined: false" && same:
			same = false
			b.violates(o, rule.SameError, "%v saw of %s: %s", e.Op, e.Name, e.Value)
		}
	}
	return same
}

// sawOnce reports whether an earlier event exists for the same step.
func (o *operation) sawOnce(e journal.Event) bool {
	return slices.ContainsFunc(o.saw, func(other journal.Event) bool { return other.Name == e.Name && other.At < e.At })
}

// standing returns the receipts of the charges that were not refunded, by what they pay for.
func (o *operation) standing() map[string]string {
	standing := map[string]string{}
	for _, e := range o.entries {
		if e.Booked && e.Refunds == "" {
			standing[e.Place] = e.Receipt
		}
	}
	for _, e := range o.entries {
		if e.Booked {
			delete(standing, e.Refunds)
		}
	}
	return standing
}

// checkPaid checks that the recorded answer names exactly the charges that the bank booked and did
// not refund.
func (b *book) checkPaid(o *operation) {
	for _, r := range b.records {
		if r.ID == o.id && r.Answer != nil && !maps.Equal(r.Answer.Paid, o.standing()) {
			b.violates(o, rule.Stands, "the answer says %v, and at the bank stands %v", r.Answer.Paid, o.standing())
		}
	}
}

func (o *operation) isRecorded(step string) bool { return o.outcome(step) != "" }

// outcome returns the recorded outcome of a step, or "" if none is recorded. A call that was only
// begun has no outcome.
func (o *operation) outcome(step string) string {
	for _, s := range o.steps {
		if s.Name == step && !isOpen(s.Outcome) {
			return s.Outcome
		}
	}
	return ""
}
