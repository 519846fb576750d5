package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/rule"
)

// fnMutants break what happens to the writes of fn.
func fnMutants() []Mutant {
	return []Mutant{
		{
			Name: "reject-keeps", About: "Reject records its answer and commits what fn wrote",
			Rules: []rule.Rule{rule.Reject, rule.Rejected},
			Edits: []Edit{{"idem.execution.run", "return x.rollback(rejected, undo, err)", `if err == nil {
		return x.complete(ctx, rejected.response, db.Failed)
	}
	return x.rollback(rejected, undo, err)`}},
		},
		{
			Name: "joined-reject-keeps", About: "Reject in a DoTx records its answer and keeps what fn wrote",
			Rules: []rule.Rule{rule.Reject, rule.Rejected},
			Edits: []Edit{{"idem.joined.execute", "j.reject(ctx, rejected.response)", "j.complete(ctx, rejected.response, db.Failed)"}},
		},
		{
			Name: "failure-commits", About: "what a failing fn wrote is committed, and its claim is not",
			Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{{"internal/txn.Tx.Held", "held := true", `held := true
	if pg.TxStatus() == 'T' {
		_, _ = pg.Exec(context.Background(), "delete from idem.records where execution_id = current_setting('idem.claim')::uuid; commit").ReadAll()
	}`}},
		},
		{
			Name: "joined-failure-stays", About: "a DoTx whose fn fails leaves its claim and its writes in the caller's transaction",
			Rules: []rule.Rule{rule.Processing, rule.Nothing},
			Edits: []Edit{{"internal/txn.Joined.Undo", "[]string{undoToSavepoint, releaseSavepoint}", `[]string{releaseSavepoint, "select 1"}`}},
		},
		{
			Name: "joined-failure-goes-on", About: "a DoTx without a savepoint does not abort the transaction after a failure",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.Processing, rule.Nothing},
			Edits:    []Edit{{"internal/txn.Joined.Undo", "abort", `"select 1"`}},
		},
		{
			Name: "claim-unchecked", About: "a response is recorded although fn has ended the transaction of the claim and begun another",
			Rules: []rule.Rule{rule.Told},
			Edits: []Edit{{"internal/db.CompleteSQL", "            WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) $3::pg_catalog.text THEN 1 ELSE 0 END)::pg_catalog.int4,\n",
				"            WHEN $3::pg_catalog.text IS NULL THEN 0 ELSE 1 END)::pg_catalog.int4,\n"}},
		},
	}
}
