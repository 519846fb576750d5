package check

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
)

// Options are what a checker has to know about a run besides its history.
type Options struct {
	// Start is when the run began, by the history's clock. It is only used to print times.
	Start time.Duration

	// Patience is how long to look for an order of the answers of one key. A key for which it does not suffice is
	// reported as unchecked. Zero stands for 10 seconds.
	Patience time.Duration

	// ClockMoved are the times during which the database's clock was being moved. What was under way then says nothing
	// about its own retention period.
	ClockMoved []Interval

	// Undisturbed says that nothing was done to anybody: no session is left of an attempt whose connection was lost.
	Undisturbed bool

	// Losses are failovers to a standby that had not received everything. What was acknowledged before may be gone, but
	// key and effect must be gone together.
	Losses []Interval

	// Kills are when workers were killed. They are only used to measure how soon others got an answer.
	Kills []Kill
}

// Kill is the death of the process in a slot.
type Kill struct {
	Slot int
	At   time.Duration
}

// Interval is a time by the history's clock.
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
