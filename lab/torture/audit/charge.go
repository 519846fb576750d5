package audit

import (
	"maps"

	"github.com/idem-go/idem/lab/torture/rule"
)

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
