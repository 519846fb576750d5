package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/rule"
)

// dayMutants break promises about operations that need no fault: the code changes, functions fail,
// and calls are declined.
func dayMutants() []Mutant {
	return []Mutant{
		{
			Name: "first-error-itself", About: "the first run of the function gets the error itself, later runs get the restored one",
			Rules: []rule.Rule{rule.SameError},
			Edits: []Edit{
				{"operation.Op.failure", `if seen, failed := restore(known, stored); failed == nil {
		return stored, seen
	}`, ""},
				{"internal/storederror.Set.Decode", `l.Known == ""`, `l.Known != ""`},
			},
		},
		{
			Name: "number-rounded", About: "a large number comes back from the record as a float64",
			Rules: []rule.Rule{rule.SameValue},
			Edits: []Edit{{"operation.jsonCodec.Decode", "d.UseNumber()", ""}},
		},
		{
			Name: "unsent-settles", About: "an attempt that was not sent, and never will be, settles one that has no answer",
			Rules: []rule.Rule{rule.Unsent}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation.outsideCall.isSettledBy", "m.final && !(o.doubt && m.unsent)", "m.final"}},
		},
		{
			Name: "unsent-clears-doubt", About: "after an attempt that was not sent, one without an answer before it is forgotten",
			Rules: []rule.Rule{rule.CallOnce, rule.Unsent}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation.Op.send", "o.doubt || unanswered", "o.doubt && !answer.unsent || unanswered"}},
		},
		{
			Name: "taken-in-vain", About: "what a process has taken up without being told is left to it, also by itself",
			Rules: []rule.Rule{rule.Woken}, Duration: 20 * time.Second,
			Edits: []Edit{
				{"internal/presence.Instance.lookIsDue", "i.looksLeft == 0 && time.Since(i.lookedAt) < rareLookPause", "i.looksLeft >= 0"},
				{"internal/db.TakeOperationsSQL", ownTaking + "c.wake_at\n", ownTakingNever + "c.wake_at\n"},
				{"internal/db.TakeOperationsSQL", ownTaking + "awaited.sent_at\n", ownTakingNever + "awaited.sent_at\n"},
			},
		},
		{
			Name: "child-apart", About: "a child is begun in a commit before that which says that its parent awaits it",
			Rules: []rule.Rule{rule.Child}, Duration: 6 * time.Second,
			Edits: []Edit{{"operation.Op.child",
				`op.record(s, db.StepWaiting, nil)
		return idem.Response{}, op.suspendForChild(s, requests...)`,
				`if err := op.commit(commit{with: requests}); err != nil {
			return idem.Response{}, err
		}
		op.record(s, db.StepWaiting, nil)
		return idem.Response{}, op.suspendForChild(s)`}},
		},
		{
			Name: "child-uncanceled", About: "a parent that is canceled waits for its child as if nothing had happened",
			Rules: []rule.Rule{rule.ChildCut}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation.Op.childOutcome", "!signal.Found && w.journal.canceled", "!signal.Found && w.journal.canceled && w.epoch < 0"}},
		},
		{
			Name: "child-taken-for-done", About: "a child that was canceled counts as one that has completed",
			Rules: []rule.Rule{rule.ChildTold}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation.Op.childAnswer", "return idem.Response{}, Final(&ChildError{OperationID: id, Canceled: end.Canceled})", "return idem.Response{Status: 200}, nil"}},
		},
	}
}

// ownTaking is the condition with which a process finds operations that it owns but does not run.
const (
	ownTaking = "           OR c.owner OPERATOR(pg_catalog.=) $1::pg_catalog.int4\n" +
		"              AND COALESCE(c.taken_at, c.since) OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval)\n" + othersTaking
	ownTakingNever = othersTaking
	othersTaking   = "           OR c.owner OPERATOR(pg_catalog.<>) $1::pg_catalog.int4\n" +
		"              AND c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))\n" +
		"      AND ($4::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)\n    ORDER BY "
)
