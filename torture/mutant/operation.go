package mutant

import (
	"time"

	"github.com/idem-go/idem/torture/fault"
	"github.com/idem-go/idem/torture/rule"
)

// Broken: operations.
func operationMutants() []Mutant {
	all := []Mutant{
		{
			Name: "call-before-commit", About: "a call is made before what came earlier is durable",
			Rules: []rule.Rule{rule.Durable},
			Edits: []Edit{{"operation/call.go",
				"		if err := op.commit(commit{at: store.At{Kind: o.step.kind, Step: o.step.name, Seq: o.step.seq}}); err != nil {\n			return nil, err\n		}\n",
				"		w.elapsed = func() time.Duration { return 0 }\n"}},
		},
		{
			Name: "no-fence", About: "a commit does not ask whether somebody else has taken the operation up",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{{operationQueries, "WHEN o.epoch OPERATOR(pg_catalog.=) $10::pg_catalog.int4\n", "WHEN o.epoch OPERATOR(pg_catalog.<>) 0 AND $10::pg_catalog.int4 IS NOT NULL\n"}},
		},
		{
			Name: "same-epoch", About: "whoever takes an operation up does not begin a new epoch",
			Rules: []rule.Rule{rule.StepOnce, rule.StepWhole, rule.OneOutcome, rule.UndoneOnce, rule.UndoneOrder, rule.SameAnswer},
			Edits: []Edit{
				{operationQueries, "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1\nWHERE", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1\nWHERE"},
				{operationQueries, "SET epoch = o.epoch OPERATOR(pg_catalog.+) 1, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1\nFROM", "SET epoch = o.epoch, owner = $1::pg_catalog.int4, attempts = o.attempts OPERATOR(pg_catalog.+) 1\nFROM"},
			},
		},
		{
			Name: "key-per-attempt", About: "a call goes to the other side under another key in each attempt",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{{"operation/call.go", "	value, err := o.call(op.ctx, o.key)\n", "	value, err := o.call(op.ctx, fmt.Sprint(o.key, rand.Uint64()))\n"}},
		},
		{
			Name: "once-again", About: "a call that is Once is made again when its outcome is unknown",
			Rules: []rule.Rule{rule.CallOnce},
			Edits: []Edit{
				{"operation/call.go", "	case begun && o.safety.once:\n", "	case begun && o.safety.once && o.safety.window > 0:\n"},
				{"operation/call.go", "	case begun && op.work.elapsed() > o.safety.window:\n", "	case begun && !o.safety.once && op.work.elapsed() > o.safety.window:\n"},
				{"operation/call.go", "	case o.safety.once:\n", "	case o.safety.once && o.safety.window > 0:\n"},
			},
		},
		{
			Name: "parked-too-soon", About: "a Keyed call counts as forgotten by the other side long before its window is over",
			Rules: []rule.Rule{rule.Reason},
			Edits: []Edit{{"operation/call.go", "op.work.elapsed() > o.safety.window:", "op.work.elapsed() > o.safety.window/100000:"}},
		},
		{
			Name: "second-commit", About: "what a step has returned is remembered in a commit of its own, behind that of what it has written",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.StepOnce, rule.StepWhole},
			Edits: []Edit{
				{"operation/commit.go", "		requests = append(requests, &r)\n", "		later = append(later, &r)\n"},
				{"operation/commit.go", "	requests := []txn.Request{&advance}\n", "	var later []txn.Request\n	requests := []txn.Request{&advance}\n"},
				{"operation/commit.go", "	w.epoch = max(w.epoch, 1)\n", `	w.epoch = max(w.epoch, 1)
	if tx, err := w.call.Engine().Open(op.ctx, store.Reclaim{OperationID: w.operation}); err == nil {
		_ = tx.Commit(op.ctx, later...)
	}
`},
			},
		},
		{
			Name: "remembered-not-written", About: "a step in Postgres is remembered, and what it has written is rolled back",
			Rules: []rule.Rule{rule.StepWhole},
			Edits: []Edit{{"operation/tx.go", "	op.remember(s, outcome, value)\n	return nil\n", `	_ = op.tx.Ask(op.ctx, store.UndoStepWrites{})
	op.remember(s, outcome, value)
	return nil
`}},
		},
		{
			Name: "undo-in-order", About: "what was done is undone in the order in which it was done",
			Rules: []rule.Rule{rule.UndoneOrder},
			Edits: []Edit{{"operation/undo.go", "	for i := len(op.undos) - 1; i >= 0; i-- {\n", "	for i := range op.undos {\n"}},
		},
		{
			Name: "undo-unremembered", About: "an undo is run again by whoever takes the operation up",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.UndoneOnce, rule.StepOnce},
			Edits:    []Edit{{"operation/undo.go", "	if op.known(u.step.seq).Outcome == store.StepUndone {\n", "	if op.known(u.step.seq).Outcome == store.StepUndone && len(op.pending) > 0 {\n"}},
		},
		{
			Name: "presence-kept", About: "a process that is not seen any more goes on under its number",
			Rules: []rule.Rule{rule.OneWorker},
			Edits: []Edit{{"operation/presence.go", "		p.forget(i)\n		i.lose()\n", ""}},
		},
		{
			Name: "signal-lost", About: "a signal that comes between the look for it and the wait is lost",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.Signalled},
			Edits: []Edit{
				{"operation/await.go", "			op.waits(s, timeout)\n", "			op.waits(s, timeout)\n			op.signals = append(op.signals, store.TakeSignal{OperationID: op.work.operation, Name: s.name})\n"},
				{"operation/await.go", "		case signal.Found:\n", "		case signal.Found && (s.found == nil || remaining > 0):\n"},
			},
		},
	}
	for i := range all {
		all[i].Faults = []fault.Name{fault.Operations}
		// Their leg takes ten seconds by itself: one is enough to show that it is a test at all.
		all[i].Slow = all[i].Name != "key-per-attempt"
	}
	return all
}

// operationQueries is what sqlc made of queries/operations.sql.
const operationQueries = "internal/db/operations.sql.go"
