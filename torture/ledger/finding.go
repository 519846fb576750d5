package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Finding is something in the database that no order of events explains.
type Finding struct {
	Rule   string `json:"rule"`
	Scope  string `json:"s,omitempty"`
	Key    string `json:"k,omitempty"`
	Detail string `json:"detail"`
}

// RuleRecord is only valid if the clock of the database was never moved.
const RuleRecord = "an effect has its record, or a successor after its retention"

// Each query returns scope, key and detail of what breaks its rule.
var rules = []struct{ name, query string }{
	{"no record in state processing is visible at rest", `
		SELECT scope, key, format('operation %s', operation_id)
		FROM idem.records WHERE state = 'processing'`},
	{"a key has one record", `
		SELECT scope, key, format('it has %s', count(*)) FROM idem.records GROUP BY scope, key HAVING count(*) > 1`},
	{"a completed record has exactly one effect", `
		SELECT r.scope, r.key, format('operation %s has %s effects', r.operation_id, count(e.op))
		FROM idem.records r LEFT JOIN torture.effects e USING (operation_id)
		WHERE r.state = 'completed' GROUP BY r.scope, r.key, r.operation_id HAVING count(e.op) <> 1`},
	{"a rejected record has no effect", `
		SELECT r.scope, r.key, format('operation %s', r.operation_id)
		FROM idem.records r JOIN torture.effects e USING (operation_id) WHERE r.state = 'failed'`},
	{"record and effect are of the same key and request", `
		SELECT e.scope, e.key, format('operation %s, its record is of %s %s', operation_id, r.scope, r.key)
		FROM idem.records r JOIN torture.effects e USING (operation_id)
		WHERE (r.scope, r.key, r.hash) IS DISTINCT FROM (e.scope, e.key, e.hash)`},
	// Nothing but a later execution of the key removes a record, and that begins when this one has expired.
	{RuleRecord, `
		SELECT e.scope, e.key, format('operation %s of call %s, the key has %s', e.operation_id, e.op, coalesce(r.operation_id::text, 'no record'))
		FROM (SELECT DISTINCT ON (scope, key) * FROM torture.effects ORDER BY scope, key, noted_at DESC) e
		LEFT JOIN idem.records r USING (scope, key)
		WHERE r.operation_id IS NULL
		   OR r.operation_id <> e.operation_id AND r.completed_at < e.noted_at + e.ttl_us * interval '1 microsecond'`},
	{"an operation has one effect", `
		SELECT min(scope), min(key), format('operation %s has %s', operation_id, count(*))
		FROM torture.effects GROUP BY operation_id HAVING count(*) > 1`},
	{"an effect is there as a whole", `
		SELECT coalesce(e.scope, ''), coalesce(e.key, ''), format('operation %s: %s of 2 entries, effect %s', operation_id, coalesce(n, 0), e.op)
		FROM torture.effects e
		FULL JOIN (SELECT operation_id, count(*) AS n, sum(amount) AS total FROM torture.entries GROUP BY operation_id) t USING (operation_id)
		WHERE e.op IS NULL OR n IS DISTINCT FROM 2 OR total <> 0`},
	{"balances are what the entries say", `
		SELECT '', '', format('account %s has %s, its entries say %s', id, balance, total)
		FROM torture.accounts
		JOIN (SELECT account AS id, sum(amount) AS total FROM torture.entries GROUP BY account) t USING (id)
		WHERE balance <> total`},
	{"what the caller of DoTx wrote is there as a whole", `
		SELECT scope, key, format('call %s wrote %s', op, string_agg(part, ' and '))
		FROM torture.outers GROUP BY op, scope, key
		HAVING count(*) <> 2 OR count(*) FILTER (WHERE part = 'before') <> 1`},
}

// maxFindings is enough of one rule to see what is going on.
const maxFindings = 20

func find(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var found []Finding
	for _, rule := range rules {
		rows, err := tx.Query(ctx, fmt.Sprintf("%s LIMIT %d", rule.query, maxFindings))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.name, err)
		}
		f := Finding{Rule: rule.name}
		_, err = pgx.ForEachRow(rows, []any{&f.Scope, &f.Key, &f.Detail}, func() error {
			found = append(found, f)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.name, err)
		}
	}
	return found, nil
}
