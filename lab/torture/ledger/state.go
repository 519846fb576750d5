package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Grace is how long a purge keeps an expired record.
const Grace = 100 * time.Millisecond

// State is the state of the database at the end of a run.
type State struct {
	Effects  []*Effect
	Records  []*Record
	Purged   []*Record
	Outers   []*Outer
	Findings []rule.Violation // violations that the database alone shows
}

// Record is a row of idem.records, or a row that was deleted from it. Times are in microseconds.
type Record struct {
	ExecutionID, Scope, Key, State string
	Created, Completed, Expires    int64
	Digest                         string `db:"-"` // empty for a deleted record
}

// Take reads the state of the database in one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*State, error) {
	s := &State{}
	times := micros("created_at") + ", " + micros("coalesce(completed_at, 'epoch')") + ", " + micros("expires_at")
	return s, Snapshot(ctx, conn,
		func(ctx context.Context, tx pgx.Tx) (err error) { s.Findings, err = find(ctx, tx); return err },
		Into(&s.Effects, `SELECT execution_id::text, op, scope, key, payload, digest, ttl_us, `+micros("noted_at")+` FROM torture.effects`),
		Into(&s.Outers, `SELECT op, scope, key, part FROM torture.outers`),
		Into(&s.Purged, `SELECT execution_id::text, scope, key, state, `+times+` FROM torture.purged`),
		func(ctx context.Context, tx pgx.Tx) (err error) { s.Records, err = records(ctx, tx, times); return err },
	)
}

// Snapshot makes all reads in a transaction that has one snapshot.
func Snapshot(ctx context.Context, conn *pgx.Conn, reads ...func(context.Context, pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		for _, read := range reads {
			if err := read(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// Into returns a function that reads the rows of a query into a slice. The columns of the query
// must be the fields of T, in their order.
func Into[T any](to *[]*T, query string, args ...any) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
		if err == nil {
			*to, err = pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[T])
		}
		return err
	}
}

func micros(column string) string { return "(extract(epoch FROM " + column + ") * 1000000)::int8" }

// records returns the rows of idem.records, with the digests of their responses.
func records(ctx context.Context, tx pgx.Tx, times string) ([]*Record, error) {
	rows, err := tx.Query(ctx, `SELECT execution_id::text, scope, key, state::text, `+times+`, hash, coalesce(status, 0), header::text, body,
		coalesce(sealed_by, '') FROM idem.records`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Record, error) {
		r, stored := &Record{}, &db.Record{Closed: true}
		var hash []byte
		var header *string
		if err := row.Scan(&r.ExecutionID, &r.Scope, &r.Key, &r.State, &r.Created, &r.Completed, &r.Expires,
			&hash, &stored.Status, &header, &stored.Body, &stored.SealedBy); err != nil {
			return nil, err
		}
		stored.ExecutionID, stored.State = r.ExecutionID, db.State(r.State)
		if header != nil {
			if err := json.Unmarshal([]byte(*header), &stored.Header); err != nil {
				return nil, err
			}
		}
		r.Digest = unreadable
		if err := open(stored, r.Scope, r.Key, [32]byte(hash)); err == nil {
			r.Digest = Digest(idem.Response{Status: stored.Status, Header: stored.Header, Body: stored.Body})
		}
		return r, nil
	})
}

// Digest returns a digest of the status, the header and the body of a response.
func Digest(r idem.Response) string {
	if len(r.Header) == 0 {
		r.Header = nil
	}
	if len(r.Body) == 0 {
		r.Body = nil
	}
	encoded, err := json.Marshal(r) // sorts the header and encodes the body as base64
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}

// Clock returns SQL that converts a time of the database to the clock of package history, in
// nanoseconds. The parameter $1 of the query must be Offset. The database runs on this machine, so
// both clocks differ by a constant.
func Clock(column string) string {
	return "((extract(epoch FROM " + column + ") * 1000000)::int8 * 1000 - $1::int8)"
}

// Offset returns the difference between the time of day and the clock of package history.
func Offset() int64 { return time.Now().UnixNano() - int64(history.Now()) }

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

// Application returns the prefix of the application_name of the sessions of a worker. The number of
// the process follows. A session of a pooler has the name of its last client, or none.
func Application(pooled bool) string {
	if pooled {
		return "torture pooled"
	}
	return "torture direct"
}

// Leftovers waits until the workers have left nothing in the server: no session in this database,
// no lock, no prepared transaction. It returns what remains after the given time.
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
