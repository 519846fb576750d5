package report

import (
	"fmt"
	"io"
	"time"

	"github.com/idem-go/idem/torture/history"
)

// Total adds up the legs of a run.
type Total struct {
	legs, calls, runs, replays, unknown, open, faults, unchecked, violations int
	longest, took                                                            time.Duration
}

// Add adds a leg.
func (t *Total) Add(leg *Leg) {
	t.legs++
	t.calls += leg.Tally.Operations
	t.runs += leg.Tally.Runs
	t.replays += total(&leg.Tally, history.Replayed)
	t.unknown += total(&leg.Tally, history.Unknown)
	t.open += total(&leg.Tally, history.Open)
	t.faults += len(leg.Faults)
	t.unchecked += len(leg.Unchecked)
	t.violations += len(leg.Violations)
	t.took += leg.End - leg.Start
	if len(leg.Freed) > 0 {
		t.longest = max(t.longest, leg.Freed[0].After)
	}
}

// PrintTotal writes the sum.
func PrintTotal(w io.Writer, t *Total) {
	fmt.Fprintf(w, "\ntogether: %d legs, %v, %d calls (%.0f/s), %d runs of a function, %d replays, %d faults, %d outcomes unknown, %d calls never returned\n",
		t.legs, t.took.Round(time.Second), t.calls, float64(t.calls)/t.took.Seconds(), t.runs, t.replays, t.faults, t.unknown, t.open)
	fmt.Fprintf(w, "longest time without an answer after a holder was killed: %v; unchecked keys: %d; violations: %d\n",
		t.longest.Round(time.Millisecond/10), t.unchecked, t.violations)
}
