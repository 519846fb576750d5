package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// operationMutants break promises of package operation.
func operationMutants() []Mutant {
	all := []Mutant{
		{
			Name: "call-before-commit", About: "a call is made before what came earlier is durable",
			Rules: []rule.Rule{rule.Durable},
			Edits: []Edit{{"operation.Op.makeCall",
				`if err := op.commit(commit{at: at}); err != nil {
			return nil, err
		}`,
				`_ = at
		op.work.begunAt = time.Now()`}},
		},
		{
			Name: "no-fence", About: "a commit does not ask whether somebody else has taken the operation up",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.Epoch, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{{"internal/db.AdvanceOperationSQL", "WHEN o.epoch OPERATOR(pg_catalog.=) $15::pg_catalog.int4\n", "WHEN o.epoch OPERATOR(pg_catalog.<>) 0 AND $15::pg_catalog.int4 IS NOT NULL\n"}},
		},
		{
			Name: "same-epoch", About: "whoever takes an operation up does not begin a new epoch",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.Epoch, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{
				{"internal/db.TakeOperationSQL", "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM (\n", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM (\n"},
				{"internal/db.TakeOperationsSQL", "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM taken\n", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM taken\n"},
			},
		},
		{
			Name: "key-per-attempt", About: "a call goes to the other side under another key in each attempt",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{{"operation.outsideCall.try", "o.key", "fmt.Sprint(o.key, time.Now().UnixNano())"}},
		},
		{
			Name: "once-again", About: "a call that is Once is made again when its outcome is unknown",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{
				{"operation.Op.attempt", "o.doubt && o.policy.once", "false"},
				{"operation.Op.attempt", "o.tries++", `o.tries++
	o.doubt = o.doubt && !o.policy.once`},
				{"operation.Op.send", "o.doubt || unanswered", "o.doubt || unanswered && !o.policy.once"},
			},
		},
		{
			Name: "begun-unsaid", About: "of calls that are made at the same time only the last is on record as begun",
			Rules: []rule.Rule{rule.CallOnce, rule.InDoubt},
			Edits: []Edit{{"operation.Calls.begin", "op.recordBegun(call, dated)", `if open := c.unsettled(); call == open[len(open)-1] {
				op.recordBegun(call, dated)
			}`}},
		},
		{
			Name: "doubt-off-record", About: "what is on record of an operation is what has ended: a call that was begun is not",
			Rules: []rule.Rule{rule.InDoubt, rule.OneKey, rule.CallOnce, rule.Stands},
			Edits: []Edit{
				{"internal/db.LoadStepsSQL", "ARRAY['call', 'undo']", "ARRAY['none']"},
			},
		},
		{
			Name: "learned-forgotten", About: "what calls have returned is forgotten if the run ends in an error",
			Rules: []rule.Rule{rule.Kept, rule.Reason},
			Edits: []Edit{{"operation.work.recordOutcomes", `if len(outcomes) == 0 || w.instance == nil {
		w.keepInMemory()
		return
	}`, `if len(outcomes) >= 0 {
		return
	}`}},
		},
		{
			Name: "call-after-cancel", About: "a canceled operation takes the steps behind its last recorded one",
			Rules: []rule.Rule{rule.Canceled},
			Edits: []Edit{{"operation.decide", "!recorded && j.unwinding()", "!recorded && j.undoing"}},
		},
		{
			Name: "told-another", About: "a call whose operation was canceled while it waited for it begins another one",
			Rules: []rule.Rule{rule.Anew, rule.Awaited}, Duration: 9 * time.Second,
			Edits: []Edit{
				{"operation.work.endedIn", "!show.Found || show.State != db.OperationUndone", "show.Found || show.State != db.OperationUndone"},
				{"operation.work.unclaimed", "show.State == db.OperationUndone && show.Canceled", "show.State == db.OperationUndone && show.Canceled && w.epoch < 0"},
				{"idem.call.isForDuplicates", "is && c.execution.work.isOperation()", "is && c == nil"},
			},
		},
		{
			Name: "parked-too-soon", About: "a Keyed call counts as forgotten by the other side long before its window is over",
			Rules: []rule.Rule{rule.Reason},
			Edits: []Edit{{"operation.Op.settleDoubt", "time.Since(op.work.begunAt) > o.policy.window", "time.Since(op.work.begunAt) > o.policy.window/100000"}},
		},
		{
			Name: "parked-for-company", About: "an operation is parked as soon as one process has died while it worked on it",
			Rules: []rule.Rule{rule.Reason},
			Edits: []Edit{{"operation.work.loadClaimed", "w.definition.maxDeaths", "1"}},
		},
		{
			Name: "second-commit", About: "what a step has returned is remembered in a commit of its own, behind that of what it has written",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole}, Duration: 6 * time.Second,
			Edits: []Edit{
				{"operation.Op.requests", "requests = append(requests, &r)", "_ = r"},
				{"operation.Op.commit", "w.epoch = max(w.epoch, 1)", `w.epoch = max(w.epoch, 1)
	if tx, err := w.execution.Engine().Open(op.ctx, db.Reclaim{ExecutionID: w.operation}); err == nil {
		var later []txn.Request
		for i := range op.pending {
			later = append(later, &op.pending[i])
		}
		_ = tx.Commit(op.ctx, later...)
	}`},
			},
		},
		{
			Name: "remembered-not-written", About: "a step in Postgres is remembered, and what it has written is rolled back",
			Rules: []rule.Rule{rule.StepWhole},
			Edits: []Edit{{"operation.Op.inTx", "op.record(s, db.StepDone, value)", `_ = op.tx.Ask(op.ctx, db.UndoStepWrites{})
	op.record(s, db.StepDone, value)`}},
		},
		{
			Name: "undo-in-order", About: "undos run in the order of their steps",
			Rules: []rule.Rule{rule.UndoneOrder},
			Edits: []Edit{{"operation.Op.unwind", "for i := len(op.undos) - 1; i >= 0; i--", "for i := range op.undos"}},
		},
		{
			Name: "undo-twice", About: "a process that takes the operation up does not see which undos have run",
			Rules: []rule.Rule{rule.UndoneOnce, rule.StepOnce, rule.CallOnce}, Duration: 6 * time.Second,
			Edits: []Edit{{"operation.Op.runUndo", "op.work.journal.undos[name]", `op.work.journal.undos["not "+name]`}},
		},
		{
			Name: "undo-rolled-back", About: "the undo of a step runs although what the step wrote was rolled back",
			Rules: []rule.Rule{rule.UndoneOnce},
			Edits: []Edit{{"operation.Op.runUndo", "op.outcomeOf(u.seq) != db.StepDone || begun && recorded.Outcome == db.StepDone", "begun && recorded.Outcome == db.StepDone"}},
		},
		{
			Name: "presence-kept", About: "a process that is not seen any more goes on under its number",
			Rules: []rule.Rule{rule.OneWorker},
			Edits: []Edit{{"internal/presence.Instance.live", `i.presence.forget(i)
		i.lose()`, ""}},
		},
		{
			Name: "signal-lost", About: "a signal that comes between the look for it and the wait is lost",
			Rules: []rule.Rule{rule.Signalled}, Duration: 6 * time.Second,
			Edits: []Edit{
				{"operation.Op.await", "op.recordPause(s, timeout)", `op.recordPause(s, timeout)
			op.signals = append(op.signals, db.TakeSignal{OperationID: op.work.operation, Name: s.name})`},
				{"operation.Op.await", "!s.isTooLate(signal.SentAt)", "(s.recorded == nil || remaining > 0)"},
			},
		},
	}
	all = append(all, dayMutants...)
	for i := range all {
		all[i].Faults = []fault.Name{fault.Operations}
		// The leg takes at least ten seconds. One mutant that is not Slow suffices for Sample.
		all[i].Slow = all[i].Name != "key-per-attempt"
	}
	return all
}

// stamped is a piece of the SQL that claims operations. It stores the time of the claim. After
// three claims in a row whose process died, it also delays the next claim.
const stamped = "    taken_at = pg_catalog.clock_timestamp(), deaths = taken.deaths,\n" +
	"    wake_at = CASE WHEN taken.deaths OPERATOR(pg_catalog.<) 3 THEN o.wake_at\n" +
	"                   ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ('1 second'::pg_catalog.interval OPERATOR(pg_catalog.*)\n" +
	"                        pg_catalog.power(2::pg_catalog.float8, LEAST(taken.deaths OPERATOR(pg_catalog.-) 3, 6)::pg_catalog.float8)) END\n"

// dayMutants break promises about operations that are tested without faults: by changes of the code
// of an operation, failures of its function, and declined calls.
var dayMutants = []Mutant{
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

// ownTaking is the condition with which a process finds operations that it owns but does not run.
const (
	ownTaking = "           OR c.owner OPERATOR(pg_catalog.=) $1::pg_catalog.int4\n" +
		"              AND COALESCE(c.taken_at, c.since) OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '5 seconds'::pg_catalog.interval)\n" + othersTaking
	ownTakingNever = othersTaking
	othersTaking   = "           OR c.owner OPERATOR(pg_catalog.<>) $1::pg_catalog.int4\n" +
		"              AND c.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(SELECT present.instance FROM present)))\n" +
		"      AND ($4::pg_catalog.bool OR suspicion.deaths OPERATOR(pg_catalog.<) 3)\n    ORDER BY "
)
