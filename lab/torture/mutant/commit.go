package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// commitMutants break how an outcome is committed and reported.
func commitMutants() []Mutant {
	return []Mutant{
		{
			Name: "two-transactions", About: "the effect is committed first, the record in a second transaction",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.LoseCommit, fault.LoseCommitAnswer, fault.LoseCommitRace, fault.KillBeforeCommit, fault.KillAfterCommit, fault.KillDuringCommit},
			Rules:    []rule.Rule{rule.Once, rule.OneEffect, rule.Record, rule.Nothing},
			Edits: []Edit{{"internal/txn.Tx.Commit", "c := &t.commit", `if len(requests) > 0 {
		var row, claim string
		err := t.conn.QueryRow(ctx, "with gone as (delete from idem.records where execution_id = current_setting('idem.claim')::uuid returning *)"+
			" select row_to_json(gone)::text, current_setting('idem.claim') from gone").Scan(&row, &claim)
		for _, step := range []struct{ sql, arg string }{
			{"commit", ""}, {"begin", ""}, {"insert into idem.records select * from json_populate_record(null::idem.records, $1::text::json)", row},
			{"select set_config('idem.claim', $1::text, true)", claim},
		} {
			var args []any
			if step.arg != "" {
				args = append(args, step.arg)
			}
			if err == nil {
				_, err = t.conn.Exec(context.Background(), step.sql, args...)
			}
		}
		if err != nil && !refused(err) {
			err = &UnknownError{Err: err}
		}
		if err != nil {
			return err
		}
	}
	c := &t.commit`}},
		},
		{
			Name: "lost-is-rolled-back", About: "an answer to COMMIT that is lost counts as a rollback: clean up and run again",
			Duration: 5 * time.Second,
			Faults:   lostCommits, Rules: []rule.Rule{rule.Once, rule.OneEffect, rule.Nothing, rule.Order},
			Edits: []Edit{{"idem.call.proceed", "ending, err = x.resolve(ctx, c.limits.resolve, c.ttl, err)", `_, _ = x.engine.Pool.Exec(context.WithoutCancel(ctx), "delete from idem.records where scope = $1 and key = $2", c.scope, c.key)
			x.key = db.NewKey(c.scope, c.key, c.hash, newExecutionID(), c.ttl)
			ending = rolledBack`}},
		},
		{
			Name: "lost-is-an-error", About: "an answer to COMMIT that is lost is reported as a failure",
			Duration: 5 * time.Second,
			Faults:   lostCommits, Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{{"idem.call.proceed", "ending, err = x.resolve(ctx, c.limits.resolve, c.ttl, err)", "ending = failed"}},
		},
		{
			Name: "context-abandons-commit", About: "the end of the context during COMMIT counts as a failure",
			Duration: 5 * time.Second,
			Faults:   []fault.Name{fault.Delay, fault.GhostStandby, fault.Freeze}, Rules: []rule.Rule{rule.Nothing},
			Edits: []Edit{
				{"internal/txn.answerDeadline.begin", "d.limit", "0"},
				{"internal/txn.Tx.commitInPlace", "t.noAnswer(ctx)", "ctx.Err()"},
			},
		},
		{
			Name: "commit-is-cancelled", About: "a COMMIT under way is cancelled at the end of the grace: the primary shows what no standby has",
			Slow:   true,
			Faults: []fault.Name{fault.FailoverStalled}, Rules: []rule.Rule{rule.Success, rule.Replayed},
			Edits: []Edit{
				{"internal/txn.sendUncanceled", "scramble(conn.PgConn().SecretKey())", ""},
				{"internal/txn.uncanceled.read", `if !u.conn.IsClosed() {
		scramble(u.conn.PgConn().SecretKey())
	}`, ""},
				{"internal/txn.Tx.commitInPlace", "t.keepPending(answers)", `_ = t.conn.PgConn().CancelRequest(context.Background())
		t.keepPending(answers)`},
			},
		},
		{
			Name: "forgotten-record", About: "a success is answered, and one record in fifty is not kept",
			Rules: []rule.Rule{rule.Record, rule.Once},
			Edits: []Edit{{"idem.execution.complete", "x.record = completedRecord(c, resp, x.claimedAt)", `x.record = completedRecord(c, resp, x.claimedAt)
		if x.key.ExecutionID < "05" {
			_, _ = x.engine.Pool.Exec(ctx, "delete from idem.records where execution_id = $1::uuid", x.key.ExecutionID)
		}`}},
		},
	}
}

// lostCommits are faults after which only the record shows the outcome of a COMMIT.
var lostCommits = []fault.Name{fault.LoseCommitAnswer, fault.LoseCommitRace, fault.GhostStandby, fault.Terminate}
