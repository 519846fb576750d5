package mutant

import (
	"github.com/idem-go/idem/torture/rule"
)

// Broken: how a key is claimed, and what is read of it.
func claimMutants() []Mutant {
	return []Mutant{
		{
			Name: "no-key", About: "a claim is an insert without a unique key and without the lock",
			Rules: []rule.Rule{rule.Once, rule.Order},
			Edits: []Edit{
				{migration, "PRIMARY KEY (scope, key)", "PRIMARY KEY (scope, key, operation_id)"},
				{queries, "ELSE pg_try_advisory_xact_lock(hashtextextended($2::text, hashtextextended($1::text, 0)))\nEND\nON CONFLICT (scope, key) DO UPDATE\nSET hash = EXCLUDED.hash, operation_id = EXCLUDED.operation_id,\n    created_at = EXCLUDED.created_at, expires_at = EXCLUDED.expires_at, state = EXCLUDED.state,\n    status = NULL, completed_at = NULL, header = NULL, body = NULL\nWHERE r.expires_at <= clock_timestamp() AND r.operation_id <> EXCLUDED.operation_id\n", "ELSE true\nEND\n"},
			},
		},
		{
			Name: "takeover", About: "a claim that loses the race takes over the record of the winner",
			Rules: []rule.Rule{rule.Once, rule.Order},
			Edits: []Edit{
				{queries, "ELSE pg_try_advisory_xact_lock(hashtextextended($2::text, hashtextextended($1::text, 0)))", "ELSE true"},
				{queries, "WHERE r.expires_at <= clock_timestamp() AND r.operation_id <> EXCLUDED.operation_id\n", ""},
			},
		},
		{
			Name: "one-lock", About: "all keys are claimed under one and the same lock",
			Rules: []rule.Rule{rule.Free},
			Edits: []Edit{{queries, "pg_try_advisory_xact_lock(hashtextextended($2::text, hashtextextended($1::text, 0)))", "pg_try_advisory_xact_lock(0)"}},
		},
		{
			Name: "no-hash", About: "a replay does not compare the hash",
			Rules: []rule.Rule{rule.Hash},
			Edits: []Edit{
				{queries, "SELECT (hash = $1::bytea)::boolean AS same_hash", "SELECT (hash = $1::bytea OR true)::boolean AS same_hash"},
				{queries, "coalesce(CASE WHEN hash = $1::bytea THEN status END, 0)", "coalesce(CASE WHEN true THEN status END, 0)"},
				{queries, "(CASE WHEN hash = $1::bytea THEN header END)", "(CASE WHEN true THEN header END)"},
				{queries, "(CASE WHEN hash = $1::bytea THEN body END)", "(CASE WHEN true THEN body END)"},
			},
		},
		{
			Name: "no-expiry", About: "a record is replayed for ever",
			Rules: []rule.Rule{rule.Expired},
			Edits: []Edit{
				{queries, "AND (live.expires_at > clock_timestamp() OR live", "AND (true OR live"},
				{queries, "  AND (expires_at > clock_timestamp() OR operation_id", "  AND (true OR operation_id"},
			},
		},
	}
}
