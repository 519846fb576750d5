package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Claimer is a session whose open transaction has claimed keys.
type Claimer struct {
	Holder
	Keys    int64 // number of advisory locks on keys, at most 32 per transaction
	Waiters int64 // number of sessions that wait for one of these locks
}

// Claimers returns the sessions whose transactions have written to idem.records, the oldest
// transaction first.
func Claimers(ctx context.Context, tx pgx.Tx, limit int) ([]Claimer, error) {
	rows, err := tx.Query(ctx, `WITH l AS MATERIALIZED (
			SELECT pid, granted, locktype, relation, classid, objid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (locktype = 'advisory' AND objsubid = 1 OR locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted)),
		holders AS (SELECT DISTINCT pid FROM l WHERE relation IN (
			SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records')),
		keys AS (SELECT k.pid, count(DISTINCT (k.classid, k.objid)) AS held, count(w.pid) AS waiters FROM l k
			LEFT JOIN l w ON w.locktype = 'advisory' AND NOT w.granted AND w.classid = k.classid AND w.objid = k.objid
			WHERE k.locktype = 'advisory' AND k.granted GROUP BY k.pid)
		SELECT h.pid, coalesce(a.application_name, ''), coalesce(a.usename, '')::text, coalesce(a.state, ''), coalesce(a.wait_event_type || ': ' || a.wait_event, ''),
			coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, a.xact_start IS NOT NULL, coalesce(keys.held, 0), coalesce(keys.waiters, 0)
		FROM holders h LEFT JOIN pg_stat_activity a ON a.pid = h.pid LEFT JOIN keys ON keys.pid = h.pid
		WHERE h.pid <> pg_backend_pid() AND coalesce(a.backend_type, 'client backend') = 'client backend'
		ORDER BY a.xact_start NULLS LAST, h.pid LIMIT $1`, int64(limit))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claimer, err error) {
		var seconds float64
		err = row.Scan(&c.PID, &c.Application, &c.Role, &c.State, &c.Waiting, &seconds, &c.Visible, &c.Keys, &c.Waiters)
		c.Since = time.Duration(seconds * float64(time.Second))
		return c, err
	})
	if err != nil {
		return nil, err
	}
	waiting := make([]*Holder, len(found))
	for i := range found {
		waiting[i] = &found[i].Holder
	}
	return found, addBlockers(ctx, tx, waiting...)
}

// Worked is a running operation with the session of its process.
type Worked struct {
	ID, Name, Scope, Key, Step string
	Since, WakeAt              time.Time
	PID                        *int32 // session with the lock on the process's instance number; may be nil
	Leased                     bool   // the process has a lease instead, because it is behind a pooler
	Application                string

	Now time.Time // by the clock of the database
}

// WorkedOn returns running operations, ordered by the time at which they were due.
func WorkedOn(ctx context.Context, tx pgx.Tx, limit int) ([]Worked, error) {
	rows, err := tx.Query(ctx, `SELECT o.id::text, o.name, o.scope, o.key, o.step, o.since, o.wake_at, l.pid, e.instance IS NOT NULL, coalesce(a.application_name, ''), clock_timestamp()
		FROM (SELECT * FROM idem.operations WHERE state = 'running' ORDER BY wake_at, id LIMIT $1) AS o
		LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1768187247::oid AND l.objid::int8::int4 = o.owner
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN idem.leases e ON e.instance = o.owner AND e.expires_at > clock_timestamp()
		ORDER BY o.wake_at, o.id`, int64(limit))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Worked, err error) {
		err = row.Scan(&w.ID, &w.Name, &w.Scope, &w.Key, &w.Step, &w.Since, &w.WakeAt, &w.PID, &w.Leased, &w.Application, &w.Now)
		return w, err
	})
}
