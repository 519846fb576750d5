package audit

import (
	"maps"
	"slices"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// stock tells how much of it the Tx of a round have taken, and how much was given back.
func (o *operation) stock(round *journal.Round, n int) (taken, given int) {
	count := func(step string) {
		for _, e := range o.effects[step] {
			if e.Amount > 0 {
				taken += e.Amount
			} else {
				given -= e.Amount
			}
		}
	}
	for _, release := range []int{0, journal.Releases - 1} {
		for _, name := range round.ReserveIn(release, n) {
			if release == 0 || round.Day.Change == journal.RenamedReserve {
				count(name)
			}
		}
	}
	count(round.Release(n))
	for k := range journal.Many {
		count(round.ReleaseOf(n, k))
	}
	return taken, given
}

// whichUndo is the rule that is broken if what a round has taken is not what it has given back.
func whichUndo(round *journal.Round) rule.Rule {
	if round.Day.Bulk != journal.Single {
		return rule.Covered
	}
	return rule.UndoneOnce
}

// charges tells of how many places of a round something was charged, of its two cards, and at how many that was taken back.
func (o *operation) charges(n int) (charged, refunded int) {
	for _, place := range []string{journal.Place(n), journal.CardPlace(n)} {
		if slices.ContainsFunc(o.entries, func(e journal.Entry) bool { return e.Booked && e.Place == place }) {
			charged++
		}
		if slices.ContainsFunc(o.entries, func(e journal.Entry) bool { return e.Booked && e.Refunds == place }) {
			refunded++
		}
	}
	return charged, refunded
}

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

// whyStanding is the rule that was broken, so that a charge stands of what was taken back.
func (b *book) whyStanding(o *operation, n int) rule.Rule {
	places := []string{journal.Place(n), journal.CardPlace(n)}
	standing := o.standing()
	for _, e := range o.entries {
		if _, stands := standing[e.Place]; !stands || !slices.Contains(places, e.Place) {
			continue
		}
		step, undo := e.Step, journal.Round{}.Repay(n)
		if e.Place == journal.CardPlace(n) {
			undo += "-card"
		}
		switch {
		case !o.isRecorded(step):
			return rule.InDoubt
		case o.plan.Rounds[n-1].Day.Early && o.outcome(undo) == "not needed":
			return rule.Covered
		case slices.ContainsFunc(o.unsent, func(u journal.Event) bool { return u.Name == step }) && o.outcome(step) == "failed":
			return rule.Unsent
		case o.row.Cancelled:
			return rule.Cancelled
		}
	}
	return rule.UndoneOnce
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
