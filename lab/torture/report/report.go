// Package report prints the results of a run, and writes them to a file for programs.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Leg is a run on one set of servers, with its results.
type Leg struct {
	Name        string
	Seed        uint64
	Took        time.Duration
	Faults      []fault.Event
	Failures    []string // why the leg failed, independent of violations
	rule.Result          // what the checkers found; empty if there was nothing to check
}

// Print prints the report of a leg. It prints the first two violations of each rule in full, and
// for each rule the number of its violations.
func Print(w io.Writer, leg *Leg) {
	fmt.Fprintf(w, "\n%s: seed %d, %v, %d calls on %d keys, %d faults", leg.Name, leg.Seed, leg.Took.Round(time.Second), leg.Calls, leg.Keys, len(leg.Faults))
	kinds := make(map[fault.Name]int)
	for _, f := range leg.Faults {
		kinds[f.Kind]++
	}
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		between := ", "
		if i%8 == 0 {
			between = ",\n    "
		}
		fmt.Fprintf(w, "%s%s %d", between, kind, kinds[kind])
	}
	fmt.Fprintln(w)
	for _, f := range leg.Faults {
		if f.Err != "" {
			fmt.Fprintf(w, "    %s did not go as planned: %s\n", f.Kind, f.Err)
		}
	}
	for _, f := range leg.Failures {
		fmt.Fprintf(w, "  FAILED: %s\n", f)
	}
	if leg.Histories > 0 {
		fmt.Fprintf(w, "  %d histories accepted by the model, in %d steps\n", leg.Histories, leg.Steps)
	}
	if n := len(leg.Unchecked); n > 0 {
		fmt.Fprintf(w, "  UNCHECKED: %d keys, too large for the model: %s\n", n, strings.Join(leg.Unchecked[:min(n, 10)], "; "))
	}
	const inFull = 2
	counts := make(map[rule.Rule]int)
	for _, v := range leg.Violations {
		if counts[v.Rule]++; counts[v.Rule] <= inFull {
			fmt.Fprint(w, "\n", v)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "  %d violations: %s\n", counts[r], r)
	}
}

// VerdictFile is the name of the file with the verdict, in the directory of a run.
const VerdictFile = "verdict.json"

// Verdict is the result of a run, for programs.
type Verdict struct {
	Broken []rule.Rule         // the rules that were broken, each once
	Failed map[string][]string // the reasons why a leg failed, by leg

	Histories, Steps int // sums of Result.Histories and Result.Steps over all legs
}

// Add adds the results of a leg.
func (v *Verdict) Add(leg *Leg) {
	v.Histories, v.Steps = v.Histories+leg.Histories, v.Steps+leg.Steps
	if len(leg.Failures) > 0 {
		if v.Failed == nil {
			v.Failed = make(map[string][]string)
		}
		v.Failed[leg.Name] = leg.Failures
	}
	for _, violation := range leg.Violations {
		if !slices.Contains(v.Broken, violation.Rule) {
			v.Broken = append(v.Broken, violation.Rule)
		}
	}
}

// Errors of a run as a whole.
var (
	ErrNotKept = errors.New("a promise was not kept")
	ErrFailed  = errors.New("a leg of the run did not work")
)

// Err returns ErrNotKept if a promise was not kept, ErrFailed if a leg failed, or nil.
func (v *Verdict) Err() error {
	switch {
	case len(v.Broken) > 0:
		return fmt.Errorf("%w: %q", ErrNotKept, v.Broken)
	case len(v.Failed) > 0:
		return fmt.Errorf("%w: %q", ErrFailed, slices.Sorted(maps.Keys(v.Failed)))
	}
	return nil
}

// Write writes the verdict to a file.
func (v *Verdict) Write(path string) error {
	encoded, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(encoded, '\n'), 0o644)
}

// ReadVerdict reads the verdict of a finished run.
func ReadVerdict(path string) (v Verdict, err error) {
	encoded, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(encoded, &v)
}
