package mutant

import (
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/rule"
)

// claimMutants break how a key is claimed and how its record is read.
func claimMutants() []Mutant {
	return []Mutant{
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
			Duration: 6 * time.Second,
			Faults:   []fault.Name{fault.Delay, fault.Freeze},
			Rules:    []rule.Rule{rule.Once, rule.Order},
			Edits:    []Edit{{"internal/db.TakeOverSQL", "WHERE r.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()\n", "WHERE true\n"}},
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
