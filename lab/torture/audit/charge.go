package audit

import (
	"maps"

	"github.com/idem-go/idem/lab/torture/rule"
)

// standing are the receipts of what was charged and not taken back, by place.
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

// checkPaid compares what stands at the bank with what the answer says.
func (b *book) checkPaid(o *operation) {
	for _, r := range b.records {
		if r.ID == o.id && r.Answer != nil && !maps.Equal(r.Answer.Paid, o.standing()) {
			b.violates(o, rule.Stands, "the answer says %v, and at the bank stands %v", r.Answer.Paid, o.standing())
		}
	}
}

func (o *operation) isRecorded(step string) bool { return o.outcome(step) != "" }

// outcome is what is on record of a step, empty if nothing is.
func (o *operation) outcome(step string) string {
	for _, s := range o.steps {
		if s.Name == step && !isOpen(s.Outcome) {
			return s.Outcome
		}
	}
	return ""
}
