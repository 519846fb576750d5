package check

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Freed is how long it took until a key whose holder was killed gave an answer again.
type Freed struct {
	Scope, Key string
	Holder     history.Op
	After      time.Duration
}

// freed measures, for every call that was killed in fn, how long others had to wait: from the kill, or from when somebody
// asked if nobody was asking then, until somebody had an answer.
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

// death is when the process that made the call was killed.
func (k *key) death(o *history.Operation) (time.Duration, bool) {
	died := history.Forever
	for _, kill := range k.options.Kills {
		if kill.Slot == o.Op.Slot() && kill.At >= o.Begin {
			died = min(died, kill.At)
		}
	}
	return died, died != history.Forever
}

// answer is when the first answer was given after a death to somebody who is alive, and when the first of these asked.
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
