package check

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Freed is how long a key had no answer after the process that held it was killed.
type Freed struct {
	Scope, Key string
	Holder     history.Op
	After      time.Duration
}

// freed measures the waiting time after each call that was killed in fn. The time runs from the
// kill until the first answer to another process. If no call was waiting at the kill, it runs from
// the first call after it.
func (k *key) freed() []Freed {
	var all []Freed
	for _, o := range k.operations {
		if o.Outcome != history.Open || len(o.Runs) == 0 {
			continue
		}
		died, ok := k.death(o)
		if !ok {
			continue
		}
		if asked, answered := k.answer(o, died); answered != history.Forever {
			all = append(all, Freed{Scope: k.scope, Key: k.name.key, Holder: o.Op, After: answered - max(died, asked)})
		}
	}
	return all
}

// death returns when the process that made the call was killed. It returns false if it was not.
func (k *key) death(o *history.Operation) (time.Duration, bool) {
	died := history.Forever
	for _, kill := range k.options.Kills {
		if kill.Slot == o.Op.Slot() && kill.At >= o.Begin {
			died = min(died, kill.At)
		}
	}
	return died, died != history.Forever
}

// answer returns when the first call of another process was answered after a death, and when the
// first of these calls began. Both are history.Forever if there is none.
func (k *key) answer(o *history.Operation, died time.Duration) (asked, answered time.Duration) {
	asked, answered = history.Forever, history.Forever
	for _, other := range k.operations {
		if other.Op.Process() == o.Op.Process() || other.End <= died || other.End == history.Forever {
			continue
		}
		asked = min(asked, other.Begin)
		if other.Outcome.Answered() || other.Outcome == history.Mismatch {
			answered = min(answered, other.End)
		}
	}
	return asked, answered
}
