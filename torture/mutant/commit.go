package mutant

import (
	"time"

	"github.com/idem-go/idem/torture/fault"
	"github.com/idem-go/idem/torture/rule"
)

// Broken: how an outcome is committed, and what is said of it.
func commitMutants() []Mutant {
	return []Mutant{
		{
			Name: "two-transactions", About: "the effect is committed first, the record in a second transaction",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.LoseCommit, fault.LoseCommitAnswer, fault.LoseCommitRace, fault.KillBeforeCommit, fault.KillAfterCommit, fault.KillDuringCommit},
			Rules:    []rule.Rule{rule.Once, rule.OneEffect, rule.Record, rule.Nothing},
			Edits: []Edit{{"tx.go", `	trip := newTrip(t.conn)
	t.call.addComplete(`, `	first := newTrip(t.conn)
	first.query(statement{sql: "delete from idem.records where operation_id = $1::uuid", params: []int16{textFormat}}, t.call.values.operationID)
	first.command("commit")
	first.send(outlasting)
	if err := first.end(); err != nil {
		t.abandon(err)
		return record{}, commitFate(err), err
	}
	second := newTrip(t.conn)
	second.command("begin")
	t.call.addClaim(second)
	second.send(outlasting)
	second.skip()
	t.call.readClaim(second)
	if err := second.end(); err != nil {
		t.abandon(err)
		return record{}, commitFate(err), err
	}
	trip := newTrip(t.conn)
	t.call.addComplete(`}},
		},
		{
			Name: "lost-is-rolled-back", About: "an answer to COMMIT that is lost counts as a rollback: clean up and run again",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.LoseCommitAnswer, fault.LoseCommitRace, fault.GhostStandby, fault.Terminate}, Rules: []rule.Rule{rule.Once, rule.OneEffect, rule.Nothing, rule.Order},
			Edits: []Edit{{"call.go", `			r, fate, err = c.resolve(ctx, err)`, `			_, _ = c.pool.Exec(context.WithoutCancel(ctx), "delete from idem.records where scope = $1 and key = $2", c.scope, c.key)
			c.operationID = newOperationID()
			c.values = c.encode()
			fate = fateAgain`}},
		},
		{
			Name: "lost-is-an-error", About: "an answer to COMMIT that is lost is reported as a failure",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.LoseCommitAnswer, fault.LoseCommitRace, fault.GhostStandby, fault.Terminate}, Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{{"call.go", `			r, fate, err = c.resolve(ctx, err)`, `			fate = fateFailed`}},
		},
		{
			Name: "context-abandons-commit", About: "the end of the context during COMMIT counts as a failure",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.Delay, fault.GhostStandby, fault.Freeze}, Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{
				{"tx.go", "	outlasting, cancel := outlast(ctx, t.call.limits.commit)\n", "	outlasting, cancel := context.WithCancel(ctx)\n"},
				{"tx.go", "		return record{}, commitFate(err), commitError(err, recorded)\n", `		if ctx.Err() != nil {
			return record{}, fateFailed, ctx.Err()
		}
		return record{}, commitFate(err), commitError(err, recorded)
`},
			},
		},
		{
			Name: "forgotten-record", About: "a success is answered, and one record in fifty is not kept",
			Rules: []rule.Rule{rule.Record, rule.Once},
			Edits: []Edit{{"tx.go", "	t.release()\n	return r, fateDone, nil\n", `	if t.call.operationID < "05" {
		_, _ = t.conn.Exec(ctx, "delete from idem.records where operation_id = $1", t.call.operationID)
	}
	t.release()
	return r, fateDone, nil
`}},
		},
	}
}
