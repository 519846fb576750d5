package model_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/torture/model"
	"github.com/idem-go/idem/lab/torture/mutant"
)

// explored returns the broken property, the figures of the exploration, and the path to a violation.
func explored[S any](spec model.Spec[S]) (broken, text string) {
	broken, path, states, steps := model.Explore(spec)
	text = fmt.Sprintf("%d states, %d steps, the most distant state after %d", states, steps, len(path)-1)
	for _, n := range path[1:] {
		if broken != "" {
			text += fmt.Sprintf("\n%s %d", n.Step.Action, n.Step.Actor)
		}
	}
	return broken, text
}

// With IDEM_TEST_ALL it needs half a minute and 1.6 GB.
func TestKeys_HoldInEveryState(t *testing.T) {
	t.Parallel()
	limits := model.Keys{Callers: model.Actors, Keys: model.Objects, Crashes: 1}
	switch {
	case testing.Short():
		limits.Callers = 2
	case os.Getenv("IDEM_TEST_ALL") != "":
		limits.Crashes = model.Crashes
	}
	broken, text := explored[model.State](limits)
	if t.Log(text); broken != "" {
		t.Error(broken)
	}
}

func TestOperations_HoldInEveryState(t *testing.T) {
	t.Parallel()
	limits := model.Operations{Crashes: model.Crashes}
	if testing.Short() {
		limits.Crashes = 0
	}
	broken, text := explored[model.OpState](limits)
	if t.Log(text); broken != "" {
		t.Error(broken)
	}
}

// The mutants of the torture that the model has: the rule that each lacks, and the property that is
// broken without it.
var ofKeys = map[string]struct{ without, broken string }{
	"no-key":                  {"unique key", "ErrorCommitsNothing"},
	"takeover":                {"conflict", "ErrorCommitsNothing"},
	"takeover-unchecked":      {"takeover rechecks", "ErrorCommitsNothing"},
	"one-lock":                {"lock per key", "FreeKeyIsClaimed"},
	"never-loads":             {"load", "InProgressHasNoAnswer"},
	"no-hash":                 {"hash", "ReplayIsOfTheLiveRecord"},
	"mismatch-is-replayed":    {"hash", "ReplayIsOfTheLiveRecord"},
	"no-expiry":               {"expiry", "ReplayIsOfTheLiveRecord"},
	"two-transactions":        {"one transaction", "RecordIffEffect"},
	"lost-is-rolled-back":     {"record decides", "RecordIffEffect"},
	"lost-is-an-error":        {"resolve", "ErrorCommitsNothing"},
	"context-abandons-commit": {"resolve", "ErrorCommitsNothing"},
	"forgotten-record":        {"record stays", "RecordIffEffect"},
	"reject-keeps":            {"reject undoes", "AtMostOnce"},
	"joined-reject-keeps":     {"reject undoes", "AtMostOnce"},
	"failure-commits":         {"failure undoes", "RecordIffEffect"},
	"claim-unchecked":         {"claim check", "ErrorCommitsNothing"},
	"no-hash-in-memory":       {"hash in memory", "ReplayIsOfTheLiveRecord"},
	"wrong-key":               {"key in memory", "ReplayIsOfTheLiveRecord"},
	"purge-unchecked":         {"purge rechecks", "RecordIffEffect"},
}

var ofOperations = map[string]struct{ without, broken string }{
	"call-before-commit":     {"commit before call", "CallIsRecorded"},
	"no-fence":               {"fence", "CallOnce"},
	"same-epoch":             {"new epoch", "OneProcessPerEpoch"},
	"key-per-attempt":        {"key per call", "CallOnce"},
	"once-again":             {"once", "CallOnce"},
	"doubt-off-record":       {"doubt is loaded", "CallOnce"},
	"call-after-cancel":      {"cancel stops", "CanceledDoesNotEnd"},
	"second-commit":          {"one transaction", "StepIffRecord"},
	"remembered-not-written": {"writes are kept", "StepIffRecord"},
}

// The mutants that the model does not have, by what it leaves out.
var beyond = map[string]string{
	"the savepoints of DoTx":         "joined-failure-stays joined-failure-goes-on",
	"standbys, disks and clocks":     "commit-is-cancelled no-fsync purge-without-grace",
	"COMMIT by the SQL of fn":        "purge-processing",
	"what seals a response":          "mark-stays mark-missing sealed-is-replayed",
	"that something happens at last": "no-handover presence-kept taken-in-vain signal-lost",
	"several steps, calls at once, and children": "begun-unsaid child-apart child-uncanceled child-taken-for-done " +
		"undo-in-order undo-twice undo-rolled-back",
	"values and errors of steps":         "first-error-itself number-rounded learned-forgotten unsent-settles unsent-clears-doubt",
	"why an operation is parked":         "parked-too-soon parked-for-company",
	"callers that wait for an operation": "told-another",
	"tenants that move":                  "move-without-fence",
	"messages": "relay-by-cursor late-behind-the-next gap-forgotten delayed-at-once lanes-divide-a-key unnamed-in-front " +
		"lost-session-counts direct-overtakes " +
		"direct-forgets slow-in-front panic-overlooked delete-before-publish nothing-held-back read-past-unread done-before-commit remembered-before " +
		"unsorted-claim failure-rolled-back payload-not-compared hindered-is-done never-closes dies-at-once order-ignored",
}

func TestMutants_HaveACounterexample(t *testing.T) {
	t.Parallel()
	without := map[string]bool{}
	for _, names := range beyond {
		for _, name := range strings.Fields(names) {
			without[name] = true
		}
	}
	for _, m := range mutant.All() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			var broken, text, want string
			if rule, ok := ofKeys[m.Name]; ok {
				want = rule.broken
				broken, text = explored[model.State](model.Keys{Callers: 3, Keys: 2, Crashes: 1, Without: rule.without})
			} else if rule, ok := ofOperations[m.Name]; ok {
				want = rule.broken
				broken, text = explored[model.OpState](model.Operations{Crashes: 1, Without: rule.without})
			} else if !without[m.Name] {
				t.Fatal("the model neither has this mutant nor says why it does not")
			}
			if t.Log(text); broken != want {
				t.Errorf("broken: %q, want %q", broken, want)
			}
		})
	}
}
