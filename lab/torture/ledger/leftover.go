package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/rule"
)

// Application returns the prefix of the application_name of the sessions of a worker. The number of
// the process follows. A session of a pooler has the name of its last client, or none.
func Application(pooled bool) string {
	if pooled {
		return "torture pooled"
	}
	return "torture direct"
}

// Leftovers waits until the workers have left nothing in the server: no session in this database,
// no lock, no prepared transaction. After patience it returns what is left.
func Leftovers(ctx context.Context, conn *pgx.Conn, patience time.Duration) ([]rule.Violation, error) {
	const query = `
		SELECT $1::text AS rule, format('pid %s: %s, %s: %s', pid, state, wait_event, left(query, 60)) AS detail
		FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
		  AND (application_name LIKE $2::text || '%' OR state <> 'idle') -- a pooler keeps idle ones
		UNION ALL
		SELECT $3::text, format('%s %s of pid %s', locktype, mode, pid)
		FROM pg_locks
		WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend') AND pid <> pg_backend_pid()
		UNION ALL
		SELECT $4::text, gid FROM pg_prepared_xacts`
	for deadline := time.Now().Add(patience); ; {
		rows, err := conn.Query(ctx, query, rule.NoConnection, Application(false), rule.NoLock, rule.NoTransaction)
		if err != nil {
			return nil, err
		}
		left, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f rule.Violation, err error) {
			return f, row.Scan(&f.Rule, &f.Detail)
		})
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
