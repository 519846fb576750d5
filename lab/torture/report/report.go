// Package report prints the results of a run.
package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Leg is a run on one set of servers, with its results.
type Leg struct {
	Name          string
	Seed          uint64
	Start, End    time.Duration
	Faults        []fault.Event
	Silences      []Silence
	Failures      []string // why the leg failed, independent of violations
	*check.Result          // nil if there was nothing to check
}

// Print prints the report of a leg.
func Print(w io.Writer, leg *Leg) {
	if leg.Result == nil {
		fmt.Fprintf(w, "\n%s: seed %d, not judged\n", leg.Name, leg.Seed)
		printFailures(w, leg.Failures)
		return
	}
	took := leg.End - leg.Start
	if leg.Tally.ByVerb == nil { // the leg does not count its calls by verb
		fmt.Fprintf(w, "\n%s: seed %d, %v, %d calls (%.0f/s) on %d keys\n", leg.Name, leg.Seed,
			took.Round(time.Millisecond), leg.Tally.Operations, rate(leg.Tally.Operations, took), leg.Keys)
		printFaults(w, leg.Faults)
		printFailures(w, leg.Failures)
		printViolations(w, leg.Violations)
		return
	}
	fmt.Fprintf(w, "\n%s: seed %d, %v, %d calls (%.0f/s) on %d keys, %d runs of a function\n", leg.Name, leg.Seed,
		took.Round(time.Millisecond), leg.Tally.Operations, rate(leg.Tally.Operations, took), leg.Keys, leg.Tally.Runs)
	printOutcomes(w, &leg.Tally)
	printFaults(w, leg.Faults)
	printSilences(w, leg.Silences)
	printFreed(w, leg.Freed)
	fmt.Fprintf(w, "  %d replays, %d records purged, %d outcomes unknown, %d calls never returned; checked in %v (%.0f calls/s); largest worker %s\n",
		total(&leg.Tally, history.Replayed), leg.Purged, total(&leg.Tally, history.Unknown), total(&leg.Tally, history.Open),
		leg.Took.Round(time.Millisecond), rate(leg.Tally.Operations, leg.Took), megabytes(leg.Tally.Memory))
	if leg.Lost > 0 {
		fmt.Fprintf(w, "  %d acknowledged executions were lost in a failover, each together with its record\n", leg.Lost)
	}
	printUnchecked(w, leg.Unchecked)
	printFailures(w, leg.Failures)
	printViolations(w, leg.Violations)
}

func printFailures(w io.Writer, failures []string) {
	for _, f := range failures {
		fmt.Fprintf(w, "  FAILED: %s\n", f)
	}
}

func rate(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

func megabytes(bytes int64) string { return fmt.Sprintf("%d MB", bytes/1e6) }

func total(t *check.Tally, outcome history.Outcome) int {
	n := 0
	for _, outcomes := range t.ByVerb {
		n += outcomes[outcome]
	}
	return n
}

func printFaults(w io.Writer, faults []fault.Event) {
	kinds := make(map[fault.Name]int)
	var failed []fault.Event
	for _, f := range faults {
		kinds[f.Kind]++
		if f.Err != "" {
			failed = append(failed, f)
		}
	}
	fmt.Fprintf(w, "  %d faults", len(faults))
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(w, "%s%s %d", separator(i), kind, kinds[kind])
	}
	fmt.Fprintln(w)
	for _, f := range failed {
		fmt.Fprintf(w, "    %s did not go as planned: %s\n", f.Kind, f.Err)
	}
}

func separator(i int) string {
	switch {
	case i == 0:
		return ": "
	case i%8 == 0:
		return ",\n    "
	}
	return ", "
}

// printFreed prints how soon a key had an answer after its holder was killed.
func printFreed(w io.Writer, freed []check.Freed) {
	if len(freed) == 0 {
		return
	}
	fmt.Fprintf(w, "  %d holders killed: the next answer for their key came after %v (median), %v at the latest\n", len(freed),
		freed[len(freed)/2].After.Round(time.Millisecond/10), freed[0].After.Round(time.Millisecond/10))
}

// printUnchecked prints the keys whose check timed out.
func printUnchecked(w io.Writer, keys []string) {
	const most = 10
	if len(keys) > 0 {
		fmt.Fprintf(w, "  UNCHECKED: %d keys, for want of time\n", len(keys))
	}
	for _, k := range keys[:min(len(keys), most)] {
		fmt.Fprintln(w, "   ", k)
	}
}

// printViolations prints the first two violations of each rule in full, and the number of each.
func printViolations(w io.Writer, violations []check.Violation) {
	const inFull = 2
	fmt.Fprintf(w, "  %d violations\n", len(violations))
	counts := make(map[rule.Rule]int)
	for _, v := range violations {
		if counts[v.Rule]++; counts[v.Rule] <= inFull {
			fmt.Fprint(w, "\n", v)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "\n%d times: %s", counts[r], r)
	}
	if len(violations) > 0 {
		fmt.Fprintln(w)
	}
}
