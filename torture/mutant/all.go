package mutant

import "time"

// The rules that a broken promise breaks, as package check and package ledger name them.
const (
	ruleOnce       = "a key is executed once in its retention period"
	ruleOrder      = "there is an order of all answers in which each is right"
	ruleNothing    = "a call that returns an error has committed nothing"
	ruleSuccess    = "an acknowledged success has its effect"
	ruleOneEffect  = "an operation has one effect"
	ruleBytes      = "an answer is, byte for byte, the response that was committed"
	ruleOwnKey     = "a replay is of an execution of its own key"
	ruleHash       = "a request with another hash is refused"
	ruleExpired    = "an expired record is not replayed"
	ruleReject     = "Reject undoes what fn wrote"
	ruleRejected   = "a rejected record has no effect"
	ruleProcessing = "no record in state processing is visible at rest"
	ruleRecord     = "an effect has its record, or a successor after its retention"
	ruleRecovers   = "the server recovers, with what was acknowledged"
	ruleJoined     = "the effect of DoTx is committed with its caller's writes"
)

const (
	queries   = "internal/db/records.sql.go"
	migration = "migrations/00001_records.sql"
)

// All are the mutants.
func All() []Mutant {
	return []Mutant{
		{
			Name: "no-key", About: "a claim is an insert without a unique key and without the lock",
			Faults: "none", Rules: []string{ruleOnce, ruleOrder},
			Edits: []Edit{
				{migration, "PRIMARY KEY (scope, key)", "PRIMARY KEY (scope, key, operation_id)"},
				{queries, "ELSE pg_try_advisory_xact_lock(hashtextextended($2::text, hashtextextended($1::text, 0)))\nEND\nON CONFLICT (scope, key) DO UPDATE\nSET hash = EXCLUDED.hash, operation_id = EXCLUDED.operation_id,\n    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,\n    status = NULL, completed_at = NULL, header = NULL, body = NULL\nWHERE r.expires_at <= clock_timestamp() AND r.operation_id <> EXCLUDED.operation_id\n", "ELSE true\nEND\n"},
			},
		},
		{
			Name: "two-transactions", About: "the effect is committed first, the record in a second transaction",
			Duration: 5 * time.Second,
			Faults:   "lose-commit,lose-commit-answer,lose-commit-race,kill-before-commit,kill-after-commit,kill-during-commit",
			Rules:    []string{ruleOnce, ruleOneEffect, ruleRecord, ruleNothing},
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
			Faults:   "lose-commit-answer,lose-commit-race,ghost-standby,terminate", Rules: []string{ruleOnce, ruleOneEffect, ruleNothing, ruleOrder},
			Edits: []Edit{{"call.go", `			r, fate, err = c.resolve(ctx, err)`, `			_, _ = c.pool.Exec(context.WithoutCancel(ctx), "delete from idem.records where scope = $1 and key = $2", c.scope, c.key)
			c.operationID = newOperationID()
			c.values = c.encode()
			fate = fateAgain`}},
		},
		{
			Name: "lost-is-an-error", About: "an answer to COMMIT that is lost is reported as a failure",
			Duration: 5 * time.Second,
			Faults:   "lose-commit-answer,lose-commit-race,ghost-standby,terminate", Rules: []string{ruleNothing},
			Edits: []Edit{{"call.go", `			r, fate, err = c.resolve(ctx, err)`, `			fate = fateFailed`}},
		},
		{
			Name: "no-fsync", About: "the server acknowledges what is not on its disk, and loses power",
			Faults: "power-loss", Settings: []string{"fsync=off"}, Rules: []string{ruleSuccess, ruleRecovers},
		},
		{
			Name: "no-hash", About: "a replay does not compare the hash",
			Faults: "none", Rules: []string{ruleHash},
			Edits: []Edit{
				{queries, "SELECT (hash = $1::bytea)::boolean AS same_hash", "SELECT (hash = $1::bytea OR true)::boolean AS same_hash"},
				{queries, "coalesce(CASE WHEN hash = $1::bytea THEN status END, 0)", "coalesce(CASE WHEN true THEN status END, 0)"},
				{queries, "(CASE WHEN hash = $1::bytea THEN header END)", "(CASE WHEN true THEN header END)"},
				{queries, "(CASE WHEN hash = $1::bytea THEN body END)", "(CASE WHEN true THEN body END)"},
			},
		},
		{
			Name: "no-hash-in-memory", About: "whoever waits in memory is given the answer without a look at its hash",
			Faults: "none", Rules: []string{ruleHash},
			Edits: []Edit{{"wait.go", "	case o.hash != c.hash:\n", "	case false:\n"}},
		},
		{
			Name: "wrong-key", About: "whoever waits in memory is given the answer of another key of its scope",
			Faults: "none", Rules: []string{ruleOwnKey},
			Edits: []Edit{{"wait.go", "flightID{pool: c.pool, scope: c.scope, key: c.key}", "flightID{pool: c.pool, scope: c.scope}"}},
		},
		{
			Name: "no-expiry", About: "a record is replayed for ever",
			Faults: "none", Rules: []string{ruleExpired},
			Edits: []Edit{
				{queries, "AND (live.expires_at > clock_timestamp() OR live", "AND (true OR live"},
				{queries, "  AND (expires_at > clock_timestamp() OR operation_id", "  AND (true OR operation_id"},
			},
		},
		{
			Name: "takeover", About: "a claim that loses the race takes over the record of the winner",
			Faults: "none", Rules: []string{ruleOnce, ruleOrder},
			Edits: []Edit{
				{queries, "ELSE pg_try_advisory_xact_lock(hashtextextended($2::text, hashtextextended($1::text, 0)))", "ELSE true"},
				{queries, "WHERE r.expires_at <= clock_timestamp() AND r.operation_id <> EXCLUDED.operation_id\n", ""},
			},
		},
		{
			Name: "reject-keeps", About: "Reject records its answer and commits what fn wrote",
			Faults: "none", Rules: []string{ruleReject, ruleRejected},
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
			Name: "context-abandons-commit", About: "the end of the context during COMMIT counts as a failure",
			Duration: 5 * time.Second,
			Faults:   "delay,ghost-standby,freeze", Rules: []string{ruleNothing},
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
			Name: "failure-commits", About: "what a failing fn wrote is committed, and its claim is not",
			Faults: "none", Rules: []string{ruleNothing},
			Edits: []Edit{{"tx.go", "	held := t.rollbackHeld()\n", `	if pg := t.conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'T' {
		_, _ = pg.Exec(ctx, "delete from idem.records where operation_id = '"+t.call.operationID+"'; commit").ReadAll()
		return record{}, fateFailed, err
	}
	held := t.rollbackHeld()
`}},
		},
		{
			Name: "joined-failure-stays", About: "a DoTx whose fn fails leaves its claim and its writes in the caller's transaction",
			Faults: "none", Rules: []string{ruleProcessing, ruleNothing},
			Edits: []Edit{{"joined.go", "		err = j.send(ctx, undoClaim, releaseSavepoint)\n", "		err = j.send(ctx, releaseSavepoint)\n"}},
		},
		{
			Name: "forgotten-record", About: "a success is answered, and one record in fifty is not kept",
			Faults: "none", Rules: []string{ruleRecord, ruleOnce},
			Edits: []Edit{{"tx.go", "	t.release()\n	return r, fateDone, nil\n", `	if t.call.operationID < "05" {
		_, _ = t.conn.Exec(ctx, "delete from idem.records where operation_id = $1", t.call.operationID)
	}
	t.release()
	return r, fateDone, nil
`}},
		},
	}
}
