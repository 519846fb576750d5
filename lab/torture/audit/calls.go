package audit

import (
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// clocks is the tolerance for comparing a time of the database with a time of the bank.
const clocks = 20 * time.Millisecond

// checkBegun checks every call that reached the bank: in the end it is recorded, no later step is
// recorded before it, and all its requests used one key.
func (b *book) checkBegun(o *operation) {
	first := map[string]journal.Entry{} // by step
	keys := map[string]string{}         // by place
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
		// A person may have resolved the call of a canceled operation as not made, and it was not
		// made.
		unwanted := o.row.Canceled && len(o.booked[step]) == 0
		if o.hasEnded() && !unwanted && !o.isRecorded(step) && !(o.isSettled(step) && len(o.booked[step]) == 0) {
			b.violates(o, rule.InDoubt, "the bank was asked for %s at %v, and that is not on record", step, e.At-b.options.Start)
		}
		if e.Refunds == "" && !o.isSettled(step) {
			b.checkFront(o, step, e.At)
		}
	}
}

// isSettled reports whether a person may have resolved the call as not made. What follows is then
// up to the code, so a record of the call is not required.
func (o *operation) isSettled(call string) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.State == "parked" && m.Reason == callInDoubt && m.ReasonStep == call
	})
}

// isSettledAt reports whether isSettled holds for any call for the place. The code may then charge
// the place by another step, under another key.
func (o *operation) isSettledAt(place string) bool {
	return slices.ContainsFunc(o.entries, func(e journal.Entry) bool { return e.Place == place && o.isSettled(e.Step) })
}

// checkFront checks that no step was inserted before a call after the call had begun. The position
// of the call must be durable before the request is sent.
func (b *book) checkFront(o *operation, call string, begun time.Duration) {
	for _, s := range o.steps { // in the order of their sequence numbers
		switch {
		case s.Name == call, journal.Beside(s.Name) == call: // begun in the same commit
			return
		case s.Kind != "tx" && s.Kind != "call" && s.Kind != "changed", s.Outcome == "rolled back":
		case s.Recorded > begun+clocks:
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
// false" if an error does not match the one that the step returned. Only the first event of a step
// is judged for its value.
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

// standing returns the receipts of the charges that were not refunded, by place.
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

// checkPaid checks that the recorded answer names exactly the charges that stand at the bank.
func (b *book) checkPaid(o *operation) {
	for _, r := range b.records {
		if r.ID == o.id && r.Answer != nil && !maps.Equal(r.Answer.Paid, o.standing()) {
			b.violates(o, rule.Stands, "the answer says %v, and at the bank stands %v", r.Answer.Paid, o.standing())
		}
	}
}

// isRecorded reports whether the outcome of a step is recorded.
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
