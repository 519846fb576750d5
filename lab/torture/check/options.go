package check

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Options are the facts about a run that are not in its history.
type Options struct {
	// Start is when the run began, by the clock of package history. Printed times are relative to
	// it.
	Start time.Duration

	// Patience limits the search for an order of the answers of one key, by default to 10 seconds.
	// A key that takes longer is reported as unchecked.
	Patience time.Duration

	// ClockMoved are the times during which the clock of the database was wrong. The retention
	// period of an execution in such a time is not judged.
	ClockMoved []Interval

	// Undisturbed reports that no fault was injected. No session of a lost connection can then hold
	// a key.
	Undisturbed bool

	// Losses are failovers to a standby that lagged behind. Executions that were acknowledged
	// shortly before may be lost, but only with key and effect together.
	Losses []Interval

	// Kills are the deaths of workers. They are only used to measure Freed.
	Kills []Kill
}

// Kill is the death of the process in a slot.
type Kill struct {
	Slot int
	At   time.Duration
}

// Interval is a period by the clock of package history.
type Interval struct{ From, To time.Duration }

func (i Interval) meets(o *history.Operation) bool { return o.Begin <= i.To && o.End >= i.From }

func anyMeets(intervals []Interval, o *history.Operation) bool {
	for _, i := range intervals {
		if i.meets(o) {
			return true
		}
	}
	return false
}

func (o *Options) patience() time.Duration {
	if o.Patience > 0 {
		return o.Patience
	}
	return 10 * time.Second
}
