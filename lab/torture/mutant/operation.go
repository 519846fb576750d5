package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Broken: operations.
func operationMutants() []Mutant {
	all := []Mutant{
		{
			Name: "call-before-commit", About: "a call is made before what came earlier is durable",
			Rules: []rule.Rule{rule.Durable},
			Edits: []Edit{{"operation.Op.callOut",
				`if err := op.commit(commit{at: store.At{Kind: o.step.kind, Step: o.step.name, Seq: o.step.seq, Tries: o.tries}}); err != nil {
			return nil, err
		}`,
				"w.elapsed = func() time.Duration { return 0 }"}},
		},
		{
			Name: "no-fence", About: "a commit does not ask whether somebody else has taken the operation up",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{{"internal/db.AdvanceOperationSQL", "WHEN o.epoch OPERATOR(pg_catalog.=) $10::pg_catalog.int4\n", "WHEN o.epoch OPERATOR(pg_catalog.<>) 0 AND $10::pg_catalog.int4 IS NOT NULL\n"}},
		},
		{
			Name: "same-epoch", About: "whoever takes an operation up does not begin a new epoch",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{
				{"internal/db.TakeOperationSQL", "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM (\n", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM (\n"},
				{"internal/db.TakeOperationsSQL", "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM taken\n", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1,\n" + stamped + "FROM taken\n"},
			},
		},
		{
			Name: "key-per-attempt", About: "a call goes to the other side under another key in each attempt",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{{"operation.outside.try", "o.key", "fmt.Sprint(o.key, time.Now().UnixNano())"}},
		},
		{
			Name: "once-again", About: "a call that is Once is made again when its outcome is unknown",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{
				{"operation.Op.attempt", "o.tries++", `o.tries++
	o.doubt = o.doubt && !o.safety.once`},
				{"operation.Op.attempt", "o.doubt || unanswered", "o.doubt || unanswered && !o.safety.once"},
			},
		},
		{
			Name: "begun-unsaid", About: "of calls that are made at the same time only the last is on record as begun",
			Rules: []rule.Rule{rule.CallOnce, rule.InDoubt},
			Edits: []Edit{{"operation.together.begin", "op.begun(call)", `if call == open[len(open)-1] {
				op.begun(call)
			}`}},
		},
		{
			Name: "doubt-off-record", About: "what is on record of an operation is what has ended: a call that was begun is not",
			Rules: []rule.Rule{rule.InDoubt, rule.OneKey, rule.CallOnce, rule.Stands},
			Edits: []Edit{
				{"internal/db.LoadStepsSQL", "o.kind OPERATOR(pg_catalog.=) 'call'", "o.kind OPERATOR(pg_catalog.=) 'none'"},
				{"internal/db.LoadStepsOfSQL", "o.kind OPERATOR(pg_catalog.=) 'call'", "o.kind OPERATOR(pg_catalog.=) 'none'"},
			},
		},
		{
			Name: "learned-forgotten", About: "what calls have returned is forgotten if the run ends in an error",
			Rules: []rule.Rule{rule.Kept, rule.Reason},
			Edits: []Edit{{"operation.work.keep", `if len(learned) == 0 || w.instance == nil {
		w.hide()
		return false
	}`, `if len(learned) >= 0 {
		return false
	}`}},
		},
		{
			Name: "cancelled-as-it-is", About: "what is cancelled behind a call that has happened is undone without the undo of that call",
			Rules: []rule.Rule{rule.Cancelled},
			Edits: []Edit{
				{"operation.Op.find", "op.work.cancelled && !op.leadsBack(kind)", "op.work.cancelled"},
				{"operation.Op.end", "!w.undoing", "!w.undoing && w.epoch < 0"},
			},
		},
		{
			Name: "parked-too-soon", About: "a Keyed call counts as forgotten by the other side long before its window is over",
			Rules: []rule.Rule{rule.Reason},
			Edits: []Edit{{"operation.Op.attempt", "op.work.elapsed() > o.safety.window", "op.work.elapsed() > o.safety.window/100000"}},
		},
		{
			Name: "parked-for-company", About: "an operation is parked as soon as one process has died while it worked on it",
			Rules: []rule.Rule{rule.Reason},
			Edits: []Edit{{"operation.work.survives", "w.definition.maxDeaths", "1"}},
		},
		{
			Name: "second-commit", About: "what a step has returned is remembered in a commit of its own, behind that of what it has written",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.StepOnce, rule.StepWhole},
			Edits: []Edit{
				{"operation.Op.commit", "requests = append(requests, &r)", "later = append(later, &r)"},
				{"operation.Op.commit", "requests := []txn.Request{&advance}", `var later []txn.Request
	requests := []txn.Request{&advance}`},
				{"operation.Op.commit", "w.epoch = max(w.epoch, 1)", `w.epoch = max(w.epoch, 1)
	if tx, err := w.call.Engine().Open(op.ctx, store.Reclaim{ExecutionID: w.operation}); err == nil {
		_ = tx.Commit(op.ctx, later...)
	}`},
			},
		},
		{
			Name: "remembered-not-written", About: "a step in Postgres is remembered, and what it has written is rolled back",
			Rules: []rule.Rule{rule.StepWhole},
			Edits: []Edit{{"operation.Op.inTx", "op.remember(s, outcome, value)", `_ = op.tx.Ask(op.ctx, store.UndoStepWrites{})
	op.remember(s, outcome, value)`}},
		},
		{
			Name: "undo-in-order", About: "what was done is undone in the order in which it was done",
			Rules: []rule.Rule{rule.UndoneOrder},
			Edits: []Edit{{"operation.Op.undo", "for i := len(op.undos) - 1; i >= 0; i--", "for i := range op.undos"}},
		},
		{
			Name: "undo-unremembered", About: "an undo is run again by whoever takes the operation up",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.UndoneOnce, rule.StepOnce},
			Edits:    []Edit{{"operation.Op.runUndo", "op.isToDo(&u.step)", "op.isToDo(&u.step) && len(op.pending) > 0"}},
		},
		{
			Name: "presence-kept", About: "a process that is not seen any more goes on under its number",
			Rules: []rule.Rule{rule.OneWorker},
			Edits: []Edit{{"operation.instance.live", `i.presence.forget(i)
		i.lose()`, ""}},
		},
		{
			Name: "signal-lost", About: "a signal that comes between the look for it and the wait is lost",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.Signalled},
			Edits: []Edit{
				{"operation.Op.await", "op.waits(s, timeout)", `op.waits(s, timeout)
			op.signals = append(op.signals, store.TakeSignal{OperationID: op.work.operation, Name: s.name})`},
				{"operation.Op.await", "!s.isTooLate(signal.SentAt)", "(s.found == nil || remaining > 0)"},
			},
		},
	}
	all = append(all, dayMutants()...)
	for i := range all {
		all[i].Faults = []fault.Name{fault.Operations}
		// Their leg takes ten seconds by itself: one is enough to show that it is a test at all.
		all[i].Slow = all[i].Name != "key-per-attempt"
	}
	return all
}

// stamped is what else the statements that take operations up say of them.
const stamped = "    taken_at = pg_catalog.clock_timestamp(), deaths = taken.deaths,\n" +
	"    wake_at = CASE WHEN taken.deaths OPERATOR(pg_catalog.<) 3 THEN o.wake_at\n" +
	"                   ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ('1 second'::pg_catalog.interval OPERATOR(pg_catalog.*)\n" +
	"                        pg_catalog.power(2::pg_catalog.float8, LEAST(taken.deaths OPERATOR(pg_catalog.-) 3, 6)::pg_catalog.float8)) END\n"
