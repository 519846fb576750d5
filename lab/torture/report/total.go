package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/memory"
)

// Total is the sum of the legs of a run.
type Total struct {
	legs, calls, runs, replays, unknown, open, faults, unchecked, violations int
	longest, silence, took, checking                                         time.Duration
	// largest is the memory of the largest worker in bytes. broken has the broken rules with their
	// legs.
	largest int64
	failed  []string
	broken  []string
	verdict Verdict
}

func (t *Total) Add(leg *Leg) {
	t.legs++
	t.verdict.add(leg)
	if len(leg.Failures) > 0 {
		t.failed = append(t.failed, leg.Name)
	}
	if leg.Result == nil {
		return
	}
	t.calls += leg.Tally.Operations
	t.runs += leg.Tally.Runs
	t.replays += total(&leg.Tally, history.Replayed)
	t.unknown += total(&leg.Tally, history.Unknown)
	t.open += total(&leg.Tally, history.Open)
	t.faults += len(leg.Faults)
	t.unchecked += len(leg.Unchecked)
	t.violations += len(leg.Violations)
	for _, violation := range leg.Violations {
		if broken := fmt.Sprintf("%s: %s", leg.Name, violation.Rule); !slices.Contains(t.broken, broken) {
			t.broken = append(t.broken, broken)
		}
	}
	t.took += leg.End - leg.Start
	t.checking += leg.Took
	t.largest = max(t.largest, leg.Tally.Memory)
	if len(leg.Freed) > 0 {
		t.longest = max(t.longest, leg.Freed[0].After)
	}
	for _, s := range leg.Silences {
		t.silence = max(t.silence, s.Longest)
	}
}

// Errors of a run as a whole.
var (
	ErrNotKept = errors.New("a promise was not kept")
	ErrFailed  = errors.New("a leg of the run did not work")
)

// Err returns ErrNotKept if a promise was not kept, ErrFailed if a leg failed, or nil.
func (t *Total) Err() error {
	switch {
	case t.violations > 0:
		return ErrNotKept
	case len(t.failed) > 0:
		return fmt.Errorf("%w: %q", ErrFailed, t.failed)
	}
	return nil
}

// Write writes the verdict to a file.
func (t *Total) Write(path string) error { return t.verdict.write(path) }

// PrintTotal prints the total.
func PrintTotal(w io.Writer, t *Total) {
	fmt.Fprintf(w, "\ntogether: %d legs, %v, %d calls (%.0f/s), %d runs of a function, %d replays, %d faults, %d outcomes unknown, %d calls never returned\n",
		t.legs, t.took.Round(time.Second), t.calls, rate(t.calls, t.took), t.runs, t.replays, t.faults, t.unknown, t.open)
	fmt.Fprintf(w, "checked in %v (%.0f calls/s); memory at most: %s here, the checker included, %s in a worker\n",
		t.checking.Round(time.Millisecond), rate(t.calls, t.checking), megabytes(memory.Most()), megabytes(t.largest))
	fmt.Fprintf(w, "longest time without a fault: %v; without an answer after a holder was killed: %v; unchecked keys: %d; failed legs: %d; violations: %d\n",
		t.silence.Round(time.Millisecond), t.longest.Round(time.Millisecond/10), t.unchecked, len(t.failed), t.violations)
	for _, name := range slices.Sorted(slices.Values(t.failed)) {
		fmt.Fprintf(w, "FAILED: %s\n", name)
	}
	for _, broken := range t.broken {
		fmt.Fprintf(w, "NOT KEPT in %s\n", broken)
	}
}
