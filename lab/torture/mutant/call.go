package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// claimMutants break how a key is claimed and how its record is read.
var claimMutants = []Mutant{
	{
		Name: "no-key", About: "a claim is an insert without a unique key and without the lock",
		Rules: []rule.Rule{rule.Once, rule.Order},
		Edits: []Edit{
			{"migrations/00001_records.sql", "PRIMARY KEY (scope, key)", "PRIMARY KEY (scope, key, execution_id)"},
			{"internal/db.ClaimSQL", claimsLocked + doNothing, "WHERE true OR $6::pg_catalog.int8 IS NULL\n"},
			{"internal/db.ClaimAtOnceSQL", claimsLockedAtOnce + doNothing, "    ELSE true\nEND\n"},
			{"internal/db.CompleteSQL", "ON CONFLICT (scope, key) DO UPDATE\nSET state = ", "ON CONFLICT (scope, key, execution_id) DO UPDATE\nSET state = "},
		},
	},
	{
		Name: "takeover", About: "a claim that loses the race takes over the record of the winner",
		Rules: []rule.Rule{rule.Once, rule.Order},
		Edits: []Edit{
			{"internal/db.ClaimSQL", claimsLocked + doNothing, "WHERE true OR $6::pg_catalog.int8 IS NULL\n" + replaceRecord},
			{"internal/db.ClaimAtOnceSQL", claimsLockedAtOnce + doNothing, "    ELSE true\nEND\n" + replaceRecord},
		},
	},
	{
		Name: "takeover-unchecked", About: "a record that was seen to be expired is taken over even if it has a live successor by then",
		Faults: []fault.Name{fault.Delay, fault.Freeze}, Duration: 6 * time.Second,
		Rules: []rule.Rule{rule.Once, rule.Order},
		Edits: []Edit{{"internal/db.TakeOverSQL", "WHERE r.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()\n", "WHERE true\n"}},
	},
	{
		Name: "one-lock", About: "all keys are claimed under one and the same lock",
		Rules: []rule.Rule{rule.Free},
		Edits: []Edit{{"internal/db.NewKey", "LockOf(scope, key)", "1"}},
	},
	{
		Name: "never-loads", About: "the load is gated off whoever has claimed: every duplicate takes the key for held",
		Rules: []rule.Rule{rule.Live},
		Edits: []Edit{{"internal/db.LoadSQL", "WHERE coalesce(pg_catalog.current_setting('idem.claim', true), '') OPERATOR(pg_catalog.<>) $2::pg_catalog.text\n",
			"WHERE $2::pg_catalog.text IS NULL\n"}},
	},
	{
		Name: "no-hash", About: "a replay does not compare the hash",
		Rules: []rule.Rule{rule.Hash},
		Edits: []Edit{
			{"internal/db.LoadSQL", "SELECT (hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea)::pg_catalog.bool AS same_hash",
				"SELECT (hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea OR true)::pg_catalog.bool AS same_hash"},
			{"internal/db.LoadSQL", "coalesce(CASE WHEN hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea THEN status END, 0)", "coalesce(status, 0)"},
			{"internal/db.LoadSQL", "(CASE WHEN hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea\n             THEN pg_catalog.convert_to(header::pg_catalog.text, 'UTF8') END)",
				"(pg_catalog.convert_to(header::pg_catalog.text, 'UTF8'))"},
			{"internal/db.LoadSQL", "(CASE WHEN hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea THEN body END)", "(body)"},
			{"internal/db.LoadSQL", "coalesce(CASE WHEN hash OPERATOR(pg_catalog.=) $1::pg_catalog.bytea THEN sealed_by END, '')", "coalesce(sealed_by, '')"},
		},
	},
	{
		Name: "mismatch-is-replayed", About: "a replay skips the hash, and answers what was read of the record: nothing",
		Rules: []rule.Rule{rule.Hash, rule.Bytes, rule.OwnMaker},
		Edits: []Edit{{"idem.answerFrom", "!r.SameHash", "false"}},
	},
	{
		Name: "no-expiry", About: "a record is replayed for ever",
		Rules: []rule.Rule{rule.Expired},
		Edits: []Edit{{"internal/db.Load.Expired", "l.Found && !l.Ours() && !l.Record.ExpiresAt.After(l.Record.LoadedAt)", "false"}},
	},
}

// Pieces of the SQL of claims that several mutants replace.
const (
	claimsLocked       = "WHERE $6::pg_catalog.int8 IS NULL OR pg_catalog.pg_try_advisory_xact_lock($6::pg_catalog.int8)\n"
	claimsLockedAtOnce = "    ELSE pg_catalog.pg_try_advisory_xact_lock($7::pg_catalog.int8)\nEND\n"
	doNothing          = "ON CONFLICT (scope, key) DO NOTHING\n"
	replaceRecord      = `ON CONFLICT (scope, key) DO UPDATE
SET hash = EXCLUDED.hash, execution_id = EXCLUDED.execution_id,
    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,
    status = NULL, completed_at = NULL, header = NULL, body = NULL, sealed_by = NULL
`
)

// commitMutants break how an outcome is committed and reported.
var commitMutants = []Mutant{
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
		Faults: lostCommits, Rules: []rule.Rule{rule.Nothing}, Duration: 5 * time.Second,
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

// lostCommits are faults after which only the record shows the outcome of a COMMIT.
var lostCommits = []fault.Name{fault.LoseCommitAnswer, fault.LoseCommitRace, fault.GhostStandby, fault.Terminate}

// fnMutants break what happens to the writes of fn.
var fnMutants = []Mutant{
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
		Rules: []rule.Rule{rule.Processing, rule.Nothing}, Duration: 6 * time.Second,
		Edits: []Edit{{"internal/txn.Joined.Undo", "abort", `"select 1"`}},
	},
	{
		Name: "claim-unchecked", About: "a response is recorded although fn has ended the transaction of the claim and begun another",
		Rules: []rule.Rule{rule.Told},
		Edits: []Edit{{"internal/db.CompleteSQL", "            WHEN pg_catalog.current_setting('idem.claim', true) OPERATOR(pg_catalog.=) $3::pg_catalog.text THEN 1 ELSE 0 END)::pg_catalog.int4,\n",
			"            WHEN $3::pg_catalog.text IS NULL THEN 0 ELSE 1 END)::pg_catalog.int4,\n"}},
	},
}

// memoryMutants break how duplicate calls of one process wait for one another in memory.
var memoryMutants = []Mutant{
	{
		Name: "no-hash-in-memory", About: "whoever waits in memory is given the answer without a look at its hash",
		Rules: []rule.Rule{rule.Hash},
		Edits: []Edit{{"idem.leaderResult.share", "case o.hash != hash", "case false"}},
	},
	{
		Name: "wrong-key", About: "whoever waits in memory is given the answer of another key of its scope",
		Rules: []rule.Rule{rule.OwnKey},
		Edits: []Edit{{"idem.call.do", "flightID{pool: pool, scope: c.scope, key: c.key}", "flightID{pool: pool, scope: c.scope}"}},
	},
	{
		Name: "no-handover", About: "a leader that fails hands over to nobody: those who wait for it do so in vain",
		Rules: []rule.Rule{rule.Holder}, Duration: 6 * time.Second,
		Edits: []Edit{{"internal/flight.Flight.Abandon", "f.next <- struct{}{}", ""}},
	},
}

// sealMutants break how a response is sealed and how its record marks that.
var sealMutants = []Mutant{
	{
		Name: "mark-stays", About: "a record that is taken over keeps the mark of a seal that its plain response does not have",
		Rules: []rule.Rule{rule.Readable, rule.Bytes},
		Edits: []Edit{
			{"internal/db.TakeOverSQL", "header = NULL, body = NULL, sealed_by = NULL\n", "header = NULL, body = NULL\n"},
			{"internal/db.CompleteSQL", "sealed_by = EXCLUDED.sealed_by\n", "sealed_by = coalesce(EXCLUDED.sealed_by, r.sealed_by)\n"},
		},
	},
	{
		Name: "mark-missing", About: "a sealed response is recorded as if it were plain",
		Rules: []rule.Rule{rule.Readable},
		Edits: []Edit{{"internal/db.Complete.Seal", "c.Header, c.Body, c.SealedBy = nil, sealed, keyID", "c.Header, c.Body = nil, sealed"}},
	},
	{
		Name: "sealed-is-replayed", About: "a replay answers what is in the database, without opening it",
		Rules: []rule.Rule{rule.Bytes},
		Edits: []Edit{{"idem.answerFrom", "r.Open(own, sealer)", "error(nil)"}},
	},
}

// serverMutants break the durability of the server by its settings.
var serverMutants = []Mutant{
	{
		Name: "no-fsync", About: "the server acknowledges what is not on its disk, and loses power",
		Faults: []fault.Name{fault.PowerLoss}, Settings: []string{"fsync=off"}, Rules: []rule.Rule{rule.Success, rule.Recovers},
	},
}

// purgeMutants break what a purge deletes.
var purgeMutants = []Mutant{
	{
		Name: "purge-unchecked", About: "a purge waits for a record that it has seen to be expired, and does not check it again before it deletes it",
		Rules: []rule.Rule{rule.Retained},
		Edits: []Edit{{"purge.deletion", `WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT r.ctid FROM`, `WHERE (r.scope, r.key) IN (
            SELECT r.scope, r.key FROM`}, {"purge.deletion", `              AND (%[2]s)
            FOR UPDATE SKIP LOCKED))
      AND (%[2]s)
`, "              AND (%[2]s))\n"}},
	},
	{
		Name: "purge-without-grace", About: "a purge deletes a record as soon as it has expired",
		Rules: []rule.Rule{rule.Grace},
		Edits: []Edit{{"purge.records", "o.Grace", "0"}},
	},
	{
		Name: "purge-processing", About: "a purge deletes records in state processing",
		Rules: []rule.Rule{rule.PurgedProcessing},
		Edits: []Edit{{"purge.records", "'{completed,failed}'", "'{completed,failed,processing}'"}},
	},
}
