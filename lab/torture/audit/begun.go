package audit

import (
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// clocks is by how much a time of the database may differ from one of the bank.
const clocks = 20 * time.Millisecond

// checkBegun checks the outcome of the calls for which the bank was asked: each has to be on record in the end, behind nothing
// that was recorded later, and under the key of its beginning.
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
		unwanted := o.row.Canceled && len(o.booked[step]) == 0 // a person may have said that it has not happened, and it was not made
		if o.hasEnded() && !unwanted && !o.isRecorded(step) && !(o.isSettled(step) && len(o.booked[step]) == 0) {
			b.violates(o, rule.InDoubt, "the bank was asked for %s at %v, and that is not on record", step, e.At-b.options.Start)
		}
		if e.Refunds == "" && !o.isSettled(step) {
			b.checkFront(o, step, e.At)
		}
	}
}

// isSettled reports whether a person may have said of a call that it has not happened, and what comes of that is up to the code.
func (o *operation) isSettled(call string) bool {
	return slices.ContainsFunc(o.moves, func(m *journal.Move) bool {
		return m.State == "parked" && m.Reason == callInDoubt && m.ReasonStep == call
	})
}

// isSettledAt reports the same of any call for a place: the code may go another way, under another key.
func (o *operation) isSettledAt(place string) bool {
	return slices.ContainsFunc(o.entries, func(e journal.Entry) bool { return e.Place == place && o.isSettled(e.Step) })
}

// checkFront checks that nothing was put in front of a call that was begun.
func (b *book) checkFront(o *operation, call string, begun time.Duration) {
	for _, s := range o.steps { // which are in their order
		switch {
		case s.Name == call, journal.Beside(s.Name) == call: // which was begun in the same commit
			return
		case s.Kind != "tx" && s.Kind != "call" && s.Kind != "changed", s.Outcome == "rolled back":
		case s.Recorded > begun+clocks:
			b.violates(o, rule.InDoubt, "the bank was asked for %s at %v, and %s %s was put in front of it at %v", call,
				begun-b.options.Start, s.Kind, s.Name, s.Recorded-b.options.Start)
			return
		}
	}
}

// checkSeen checks what the runs of a function have made of what a step has returned, and reports
// whether they all went the same way.
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

// sawOnce reports whether another run saw the same of a step before.
func (o *operation) sawOnce(e journal.Event) bool {
	return slices.ContainsFunc(o.saw, func(other journal.Event) bool { return other.Name == e.Name && other.At < e.At })
}
