package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/rule"
)

// Broken: operations on an ordinary day.
func dayMutants() []Mutant {
	return []Mutant{
		{
			Name: "first-error-itself", About: "the function is given the error itself in the first run, and what is left of it in every later one",
			Rules: []rule.Rule{rule.SameError},
			Edits: []Edit{
				{"operation/op.go", "	if seen, failed := decodeFailure(known, stored); failed == nil {\n		return stored, seen\n	}\n", ""},
				{"operation/failure.go", "		if l.Known == \"\" {\n			continue\n		}\n		err := k.again(l)\n", "		if l.Known != \"\" {\n			continue\n		}\n		err := k.again(l)\n"},
			},
		},
		{
			Name: "number-rounded", About: "a large number comes back from the record as a float64",
			Rules: []rule.Rule{rule.SameValue},
			Edits: []Edit{{"operation/value.go", "	d.UseNumber()\n", ""}},
		},
		{
			Name: "unsent-settles", About: "an attempt that was not sent, and never will be, settles one that has no answer",
			Rules: []rule.Rule{rule.Unsent}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/call.go", "	return s.final && !(o.doubt && s.unsent)\n", "	return s.final\n"}},
		},
		{
			Name: "unsent-clears-doubt", About: "after an attempt that was not sent, one without an answer before it is forgotten",
			Rules: []rule.Rule{rule.CallOnce, rule.Unsent}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/call.go", "	o.doubt = o.doubt || unanswered\n", "	o.doubt = o.doubt && !answer.unsent || unanswered\n"}},
		},
		{
			Name: "undo-mixed", About: "an undo is run for all that it covers, of which some is committed and some rolled back",
			Rules: []rule.Rule{rule.Covered, rule.UndoneOnce}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/takenback.go", "	return r.lasting && r.pending\n", "	return r.lasting && r.pending && to < 0\n"}},
		},
		{
			Name: "taken-in-vain", About: "what a process has taken up without being told is left to it, also by itself",
			Rules: []rule.Rule{rule.Woken}, Duration: 20 * time.Second,
			Edits: []Edit{
				{"operation/presence.go", "	if i.leaked == 0 && time.Since(i.looked) < rareLooks {\n", "	if i.leaked >= 0 {\n"},
				{operationQueries, ownTaking + "c.wake_at\n", ownTakingNever + "c.wake_at\n"},
				{operationQueries, ownTaking + "awaited.sent_at\n", ownTakingNever + "awaited.sent_at\n"},
			},
		},
		{
			Name: "child-apart", About: "a child is begun in a commit before that which says that its parent awaits it",
			Rules: []rule.Rule{rule.Child}, Duration: 6 * time.Second,
			Edits: []Edit{{"operation/child.go",
				"		op.remember(s, store.StepWaiting, nil)\n		return idem.Response{}, op.untilChildEnds(s, requests...)\n",
				"		if err := op.commit(commit{with: requests}); err != nil {\n			return idem.Response{}, err\n		}\n		op.remember(s, store.StepWaiting, nil)\n		return idem.Response{}, op.untilChildEnds(s)\n"}},
		},
		{
			Name: "child-not-taken-back", About: "the undo behind a child is not run for it",
			Rules: []rule.Rule{rule.ChildBack}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/takenback.go", "	return kind == store.TxStep || kind == store.CallStep || kind == store.ChildStep\n", "	return kind == store.TxStep || kind == store.CallStep\n"}},
		},
		{
			Name: "child-left", About: "a parent that is cancelled is undone over a child that nothing takes back, and asks nobody",
			Rules: []rule.Rule{rule.ChildBack}, Duration: 27 * time.Second,
			Edits: []Edit{{"operation/takenback.go", "		case s.Kind != store.CallStep && s.Kind != store.ChildStep:\n", "		case s.Kind != store.CallStep:\n"}},
		},
		{
			Name: "child-uncancelled", About: "a parent that is cancelled waits for its child as if nothing had happened",
			Rules: []rule.Rule{rule.ChildCut}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/child.go", "	case !signal.Found && op.work.cancelled:\n", "	case !signal.Found && op.work.cancelled && op.work.epoch < 0:\n"}},
		},
		{
			Name: "child-taken-for-done", About: "a child that was cancelled counts as one that has completed",
			Rules: []rule.Rule{rule.ChildTold}, Duration: 9 * time.Second,
			Edits: []Edit{{"operation/child.go", "		return idem.Response{}, Final(&ChildError{OperationID: id, Cancelled: end.Cancelled})\n", "		return idem.Response{Status: 200}, nil\n"}},
		},
	}
}

// ownTaking is how the look for what is due finds what was taken up by its own process, which does not work on it.
const (
	ownTaking = "           OR c.owner OPERATOR(pg_catalog.=) $1::pg_catalog.int4\n" +
		"              AND COALESCE(c.taken_at, c.since) OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval)\n" + othersTaking
	ownTakingNever = othersTaking
	othersTaking   = "           OR c.owner OPERATOR(pg_catalog.<>) $1::pg_catalog.int4\n" +
		"              AND c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))\n" +
		"      AND ($4::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)\n    ORDER BY "
)
