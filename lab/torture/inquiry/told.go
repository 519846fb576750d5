package inquiry

import (
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkTold checks the outcomes that consumers got for deliveries.
func (f *file) checkTold() {
	for _, e := range f.events {
		if e.Kind != letter.KindTold {
			continue
		}
		for _, a := range e.Answers {
			f.checkAnswer(&e, &a)
		}
	}
}

func (f *file) checkAnswer(e *letter.Event, a *letter.Answer) {
	k := f.of(a.ID)
	switch {
	case a.Forged && (a.Outcome == history.Executed || a.Outcome == history.Replayed || a.Outcome == history.Died):
		f.violates(rule.Forged, a.ID, "%v, of %s, was told that it is %s", e.Op, e.Consumer, a.Outcome)
	case !a.Forged && a.Outcome == history.Mismatch:
		f.violates(rule.Forged, a.ID, "%v, of %s, was told that it has another payload, and it has not", e.Op, e.Consumer)
	case !a.Forged && a.Outcome.Answered() && k.effects[e.Consumer] == 0:
		f.violates(rule.DoneTold, a.ID, "%v, of %s, was told that it is %s", e.Op, e.Consumer, a.Outcome)
	case a.Outcome == history.Died && k.dead[e.Consumer] == nil:
		f.violates(rule.Dead, a.ID, "%v, of %s, was told that it is a dead letter: %s", e.Op, e.Consumer, a.Err)
	}
}
