package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/report"
)

func leg() *report.Leg {
	result := &check.Result{
		Took: 100 * time.Millisecond,
		Keys: 7, Unchecked: []string{"scope s, key slow"}, Purged: 5, Lost: 4,
		Freed: []check.Freed{{After: 900 * time.Millisecond}, {After: 20 * time.Millisecond}, {After: 10 * time.Millisecond}},
		Tally: check.Tally{
			Operations: 1000, Runs: 120, Memory: 45e6,
			ByVerb: map[string]map[history.Outcome]int{"Do": {history.Executed: 100, history.Replayed: 880, history.Unknown: 3, history.Open: 17}},
			ByFn:   map[string]map[history.Outcome]int{"ok": {history.Executed: 100}},
		},
	}
	for range 5 {
		result.Violations = append(result.Violations, check.Violation{
			Rule: "a rule", Scope: "s", Key: "k", Detail: "what is wrong", History: []string{"the first call", "the second call"},
		})
	}
	return &report.Leg{
		Name: "main", Seed: 42, Start: time.Second, End: 3 * time.Second, Result: result,
		Silences: []report.Silence{{Longest: 1200 * time.Millisecond, AtMost: time.Minute}}, Failures: []string{"a fault hangs"},
		Faults: []fault.Event{{Kind: fault.Kill}, {Kind: fault.Kill}, {Kind: fault.Cut, Err: "nothing to cut"}},
	}
}

func TestTheReportSaysWhatCameOfARun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	report.Print(&out, leg())
	for _, want := range []string{
		"main: seed 42, 2s, 1000 calls (500/s) on 7 keys, 120 runs of a function",
		"3 faults: cut 1, kill 2", "cut did not go as planned: nothing to cut",
		"3 holders killed: the next answer for their key came after 20ms (median), 900ms at the latest",
		"longest time without a fault: 1.2s, of at most 1m0s",
		"880 replays, 5 records purged, 3 outcomes unknown, 17 calls never returned; checked in 100ms (10000 calls/s); largest worker 45 MB",
		"  FAILED: a fault hangs\n",
		"4 acknowledged executions were lost in a failover",
		"UNCHECKED: 1 keys", "scope s, key slow",
		"5 violations\n", "\nNOT KEPT: a rule\n  scope s, key k\n  what is wrong\n    the first call\n    the second call\n", "5 times: a rule",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %q", want)
		}
	}
	if n := strings.Count(out.String(), "NOT KEPT"); n != 2 {
		t.Errorf("%d of one rule in full", n)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestALegThatCouldNotBeJudgedSaysSo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	report.Print(&out, &report.Leg{Name: "disk", Seed: 3, Failures: []string{"the server refuses connections"}})
	if want := "\ndisk: seed 3, not judged\n  FAILED: the server refuses connections\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTheTotalAddsUpTheLegs(t *testing.T) {
	t.Parallel()
	var total report.Total
	total.Add(leg())
	total.Add(leg())
	var out bytes.Buffer
	report.PrintTotal(&out, &total)
	for _, want := range []string{
		"2 legs, 4s, 2000 calls (500/s), 240 runs of a function, 1760 replays, 6 faults, 6 outcomes unknown, 34 calls never returned",
		"checked in 200ms (10000 calls/s); memory at most: ", " here, the checker included, 45 MB in a worker",
		"longest time without a fault: 1.2s; without an answer after a holder was killed: 900ms; unchecked keys: 2; failed legs: 2; violations: 10",
		"FAILED: main\n", "NOT KEPT in main: a rule\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in:\n%s", want, out.String())
		}
	}
}
