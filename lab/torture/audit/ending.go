package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkEnding checks that the operation has ended, and that its callers got its actual outcome. All
// callers of a completed or rejected operation must get the same answer, with the recorded values.
func (b *book) checkEnding(o *operation) {
	switch o.row.State {
	case "running":
		if o.awaitsParked() {
			break
		}
		b.violates(o, rule.Ends, "it runs at %q; last error: %s", o.row.Step, o.row.LastError)
	case "parked":
		b.violates(o, rule.Mended, "nothing that a person has said lets it go on: %s at %q: %s", o.row.Reason, o.row.ReasonStep, o.row.ReasonText)
	}
	if len(o.parked) > 0 && !slices.ContainsFunc(o.moves, func(m *journal.Move) bool { return m.State == "parked" }) {
		b.violates(o, rule.Acknowledge, "%v was told that it is parked", o.parked[0])
	}
	if o.row.Canceled && o.row.State == "completed" {
		b.violates(o, rule.Acknowledge, "it was canceled")
	}
	for _, a := range o.answers {
		want := map[bool]string{false: "completed", true: "failed"}[a.Rejected]
		if o.row.State != want || a.Answer.Operation != o.id || a.Answer.Rejected != a.Rejected {
			b.violates(o, rule.Acknowledge, "%v was told that it is %s", a.Op, want)
		}
		if first := o.answers[0].Answer; !maps.Equal(a.Answer.Values, first.Values) {
			b.violates(o, rule.SameAnswer, "%v was told %v, and %v was told %v", a.Op, a.Answer.Values, o.answers[0].Op, first.Values)
		}
		for step, value := range a.Answer.Values {
			if !o.remembers(step, value) {
				b.violates(o, rule.SameAnswer, "%v was told that %s has returned %q", a.Op, step, value)
			}
		}
	}
}

// remembers reports whether an answer may contain the value for the step. The value must be the
// recorded one, or "timeout" if the step failed. A step that was rolled back may have any value.
func (o *operation) remembers(step, value string) bool {
	for _, s := range o.steps {
		if s.Name == step {
			return s.Value == fmt.Sprintf("%q", value) || value == "timeout" && s.Outcome == "failed" || s.Outcome == "rolled back"
		}
	}
	return false
}

// checkSignals checks that an operation received every signal that was acknowledged before the
// deadline of its Await, and that the received value is the sent one.
func (b *book) checkSignals(o *operation) {
	for _, s := range o.steps {
		if s.Kind != "await" {
			continue
		}
		if acked := o.acked[s.Name]; s.Outcome == "failed" && acked > 0 && acked < s.Due {
			b.violates(o, rule.Signalled, "%s has timed out, and its signal was there %v before", s.Name, time.Duration(s.Due-acked)*time.Microsecond)
		}
		for _, signal := range o.signals {
			if s.Outcome == "done" && signal.Name == s.Name && signal.Value != s.Value {
				b.violates(o, rule.Signalled, "%s has received %s, and %s was sent", s.Name, s.Value, signal.Value)
			}
		}
	}
}

// checkKeys checks that each key has one outcome and one record. A key may have many operations
// that were undone, because an undone operation frees its key, but only one in any other state.
func (b *book) checkKeys() {
	held := map[string]*operation{}
	records := map[string]*journal.Record{}
	for _, r := range b.records {
		records[r.Key] = r
	}
	for _, o := range b.operations {
		if o.row == nil || o.row.State == "undone" {
			continue
		}
		if other := held[o.row.Key]; other != nil {
			b.violates(o, rule.OneOutcome, "it is %s, and so is operation %s: %s", o.row.State, other.id, other.row.State)
		}
		held[o.row.Key] = o
		want := map[string]string{"completed": "completed", "failed": "failed"}[o.row.State]
		if want == "" {
			want = "running"
		}
		r := records[o.row.Key]
		switch {
		case r == nil || r.ID != o.id || r.State != want:
			b.violates(o, rule.OneOutcome, "the record of its key is %+v", r)
		case len(o.answers) > 0 && (r.Answer == nil || !maps.Equal(r.Answer.Values, o.answers[0].Answer.Values)):
			b.violates(o, rule.SameAnswer, "the record says %+v, and %v was told %+v", r.Answer, o.answers[0].Op, o.answers[0].Answer)
		}
	}
	for _, o := range b.operations {
		if len(o.started) > 0 && o.row == nil {
			b.violates(o, rule.Acknowledge, "%v has started it, and it is not there", o.started[0].Op)
		}
	}
}

// checkAnew checks that a call does not begin a second operation for its key after it ran, or
// waited for, an operation that was canceled.
func (b *book) checkAnew() {
	// The row of an operation does not name the call that created the operation. It is the call that
	// began the first run.
	begun := map[history.Op][]*operation{} // operations by the call that began their first run
	canceled := map[string][]*operation{}  // canceled operations by key
	for _, o := range b.operations {
		if o.row == nil {
			continue
		}
		if by := o.firstRun().by; by != 0 {
			begun[by] = append(begun[by], o)
		}
		if o.row.Canceled {
			canceled[o.row.Key] = append(canceled[o.row.Key], o)
		}
	}
	for by, operations := range begun {
		c := b.calls[by]
		for _, o := range operations {
			if c == nil {
				continue
			}
			for _, former := range canceled[c.key] {
				at := former.canceledAt()
				if former == o || at == 0 || o.firstRun().begin < at {
					continue
				}
				if former.ranBy(by, at) || c.waited > 0 && former.moves[0].At < c.waited && c.waited < at {
					b.violates(o, rule.Anew, "%v has begun it, which was part of %s when that was canceled at %v", by, former.id, at-b.options.Start)
				}
			}
		}
	}
}

// checkAwaited checks the answer to a call that waited for an operation which was then canceled. It
// must not be the answer of another operation with the same key.
func (b *book) checkAwaited() {
	canceled := map[string][]*operation{} // canceled operations by key
	for _, o := range b.operations {
		if o.row != nil && o.row.Canceled && o.row.State == "undone" && len(o.moves) > 0 {
			canceled[o.row.Key] = append(canceled[o.row.Key], o)
		}
	}
	for _, o := range b.operations {
		for _, a := range o.answers {
			c := b.calls[a.Op]
			if c == nil || c.waited == 0 {
				continue
			}
			for _, former := range canceled[c.key] {
				begun, ended := former.moves[0].At, former.moves[len(former.moves)-1].At
				if former != o && begun+clocks < c.waited && c.waited < ended-clocks {
					b.violates(o, rule.Awaited, "%v has waited for %s at %v, and was told of this one", a.Op, former.id, c.waited-b.options.Start)
				}
			}
		}
	}
}

// firstRun returns the earliest run, or the zero run if there is none.
func (o *operation) firstRun() (first run) {
	for i, r := range o.runs {
		if i == 0 || r.begin < first.begin {
			first = r
		}
	}
	return first
}

// ranBy reports whether the call began a run of o before the given time.
func (o *operation) ranBy(call history.Op, before time.Duration) bool {
	for _, r := range o.runs {
		if r.by == call && r.begin < before {
			return true
		}
	}
	return false
}

// canceledAt returns the time of the first move that shows the operation as canceled, or 0 if there
// is none.
func (o *operation) canceledAt() time.Duration {
	for _, m := range o.moves {
		if m.Canceled {
			return m.At
		}
	}
	return 0
}
