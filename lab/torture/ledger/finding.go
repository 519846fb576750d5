package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// rules are queries for violations. Each returns the scope, the key and the detail of a violation.
var rules = []struct {
	rule  rule.Rule
	query string
}{
	{rule.Processing, `
		SELECT scope, key, format('execution %s', execution_id)
		FROM idem.records WHERE state = 'processing' AND scope <> '` + history.CommitScope + `'`},
	{rule.OneRecord, `
		SELECT scope, key, format('it has %s', count(*)) FROM idem.records GROUP BY scope, key HAVING count(*) > 1`},
	{rule.Completed, `
		SELECT r.scope, r.key, format('execution %s has %s effects', r.execution_id, count(e.op))
		FROM idem.records r LEFT JOIN torture.effects e USING (execution_id)
		WHERE r.state = 'completed' GROUP BY r.scope, r.key, r.execution_id HAVING count(e.op) <> 1`},
	{rule.Rejected, `
		SELECT r.scope, r.key, format('execution %s', r.execution_id)
		FROM idem.records r JOIN torture.effects e USING (execution_id) WHERE r.state = 'failed'`},
	{rule.SameRequest, `
		SELECT e.scope, e.key, format('execution %s, its record is of %s %s', execution_id, r.scope, r.key)
		FROM idem.records r JOIN torture.effects e USING (execution_id)
		WHERE (r.scope, r.key, r.hash) IS DISTINCT FROM (e.scope, e.key, e.hash)`},
	// A record is removed only by a purge or by a later execution of its key, which begins after
	// the record has expired.
	{rule.Record, `
		SELECT e.scope, e.key, format('execution %s of call %s, the key has %s', e.execution_id, e.op, coalesce(r.execution_id::text, 'no record'))
		FROM (SELECT DISTINCT ON (scope, key) * FROM torture.effects ORDER BY scope, key, noted_at DESC) e
		LEFT JOIN idem.records r USING (scope, key)
		WHERE r.execution_id IS NULL AND NOT EXISTS (
		          SELECT FROM torture.purged p
		          WHERE (p.scope, p.key) = (e.scope, e.key) AND p.deleted_at >= e.noted_at + e.ttl_us * interval '1 microsecond')
		   OR r.execution_id <> e.execution_id AND r.completed_at < e.noted_at + e.ttl_us * interval '1 microsecond'`},
	{rule.Retained, `
		SELECT scope, key, format('execution %s, %s before its time', execution_id, expires_at - deleted_at)
		FROM torture.purged WHERE deleted_at < expires_at`},
	{rule.Grace, fmt.Sprintf(`
		SELECT scope, key, format('execution %%s, %%s after it had expired', execution_id, deleted_at - expires_at)
		FROM torture.purged WHERE deleted_at >= expires_at AND deleted_at < expires_at + interval '%d microseconds'`, Grace.Microseconds())},
	{rule.PurgedProcessing, `
		SELECT scope, key, format('execution %s', execution_id) FROM torture.purged WHERE state = 'processing'`},
	{rule.OneEffect, `
		SELECT min(scope), min(key), format('execution %s has %s', execution_id, count(*))
		FROM torture.effects GROUP BY execution_id HAVING count(*) > 1`},
	{rule.WholeEffect, `
		SELECT coalesce(e.scope, ''), coalesce(e.key, ''), format('execution %s: %s of 2 entries, effect %s', execution_id, coalesce(n, 0), e.op)
		FROM torture.effects e
		FULL JOIN (SELECT execution_id, count(*) AS n, sum(amount) AS total FROM torture.entries GROUP BY execution_id) t USING (execution_id)
		WHERE e.op IS NULL OR n IS DISTINCT FROM 2 OR total <> 0`},
	{rule.Balances, `
		SELECT '', '', format('account %s has %s, its entries say %s', id, balance, total)
		FROM torture.accounts
		JOIN (SELECT account AS id, sum(amount) AS total FROM torture.entries GROUP BY account) t USING (id)
		WHERE balance <> total`},
	{rule.WholeCaller, `
		SELECT scope, key, format('call %s wrote %s', op, string_agg(part, ' and '))
		FROM torture.outers GROUP BY op, scope, key
		HAVING count(*) <> 2 OR count(*) FILTER (WHERE part = 'before') <> 1`},
}

// maxFindings is the maximum number of findings of one rule.
const maxFindings = 20

func find(ctx context.Context, tx pgx.Tx) ([]rule.Violation, error) {
	var found []rule.Violation
	for _, r := range rules {
		rows, err := tx.Query(ctx, fmt.Sprintf("%s LIMIT %d", r.query, maxFindings))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.rule, err)
		}
		f := rule.Violation{Rule: r.rule}
		_, err = pgx.ForEachRow(rows, []any{&f.Scope, &f.Key, &f.Detail}, func() error {
			found = append(found, f)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.rule, err)
		}
	}
	return found, nil
}
