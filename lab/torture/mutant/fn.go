package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/rule"
)

// Broken: what happens to what fn wrote.
func fnMutants() []Mutant {
	return []Mutant{
		{
			Name: "reject-keeps", About: "Reject records its answer and commits what fn wrote",
			Rules: []rule.Rule{rule.Reject, rule.Rejected},
			Edits: []Edit{{"tx.go", "	return x.rollback(rejected, undo, err)\n", `	if err == nil {
		return x.complete(ctx, rejected.response, store.Failed)
	}
	return x.rollback(rejected, undo, err)
`}},
		},
		{
			Name: "joined-reject-keeps", About: "Reject in a DoTx records its answer and keeps what fn wrote",
			Rules: []rule.Rule{rule.Reject, rule.Rejected},
			Edits: []Edit{{"joined.go", "		return j.reject(ctx, rejected.response)\n", "		return j.complete(ctx, rejected.response, store.Failed)\n"}},
		},
		{
			Name: "failure-commits", About: "what a failing fn wrote is committed, and its claim is not",
			Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{{"internal/txn/tx.go", "	held := true\n	if pg.TxStatus() == 'T' {\n", `	held := true
	if pg.TxStatus() == 'T' {
		_, _ = pg.Exec(context.Background(), "delete from idem.records where execution_id = current_setting('idem.claim')::uuid; commit").ReadAll()
	}
	if pg.TxStatus() == 'T' {
`}},
		},
		{
			Name: "joined-failure-stays", About: "a DoTx whose fn fails leaves its claim and its writes in the caller's transaction",
			Rules: []rule.Rule{rule.Processing, rule.Nothing},
			Edits: []Edit{{"internal/txn/joined.go", "	commands := []string{undoToSavepoint, releaseSavepoint}\n", "	commands := []string{releaseSavepoint, \"select 1\"}\n"}},
		},
		{
			Name: "joined-failure-goes-on", About: "a DoTx without a savepoint does not abort the transaction after a failure",
			Duration: 6 * time.Second,
			Rules:    []rule.Rule{rule.Processing, rule.Nothing},
			Edits:    []Edit{{"internal/txn/joined.go", "		commands = []string{abort}\n", "		commands = []string{\"select 1\"}\n"}},
		},
		{
			Name: "claim-unchecked", About: "a response is recorded although fn has ended the transaction of the claim and begun another",
			Rules: []rule.Rule{rule.Told},
			Edits: []Edit{{queries, "            WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) $3::pg_catalog.text THEN 1 ELSE 0 END)::pg_catalog.int4,\n",
				"            WHEN $3::pg_catalog.text IS NULL THEN 0 ELSE 1 END)::pg_catalog.int4,\n"}},
		},
	}
}
