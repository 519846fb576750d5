package mutant

import (
	"github.com/idem-go/idem/torture/rule"
)

// Broken: what becomes of what fn wrote.
func fnMutants() []Mutant {
	return []Mutant{
		{
			Name: "reject-keeps", About: "Reject records its answer and commits what fn wrote",
			Rules: []rule.Rule{rule.Reject, rule.Rejected},
			Edits: []Edit{{"tx.go", `	held := t.rollbackHeld()
	rejected, isRejection := errors.AsType[*rejection](err)
`, `	rejected, isRejection := errors.AsType[*rejection](err)
	if isRejection {
		r, fate, err := t.complete(ctx, record{ours: true, sameHash: true, operationID: t.call.operationID}, rejected.response, failed)
		return r, fate, err
	}
	held := t.rollbackHeld()
`}},
		},
		{
			Name: "failure-commits", About: "what a failing fn wrote is committed, and its claim is not",
			Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{{"tx.go", "	held := t.rollbackHeld()\n", `	if pg := t.conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'T' {
		_, _ = pg.Exec(ctx, "delete from idem.records where operation_id = '"+t.call.operationID+"'; commit").ReadAll()
		return record{}, fateFailed, err
	}
	held := t.rollbackHeld()
`}},
		},
		{
			Name: "joined-failure-stays", About: "a DoTx whose fn fails leaves its claim and its writes in the caller's transaction",
			Rules: []rule.Rule{rule.Processing, rule.Nothing},
			Edits: []Edit{{"joined.go", "		err = j.send(ctx, undoClaim, releaseSavepoint)\n", "		err = j.send(ctx, releaseSavepoint)\n"}},
		},
	}
}
