package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Holder is a session whose transaction has written to idem.records. It holds the keys that it has
// claimed. A field that the role may not read is zero.
type Holder struct {
	PID         int32         `json:"pid"`
	Application string        `json:"application_name"`
	Role        string        `json:"role"`
	State       string        `json:"state"`                 // as in pg_stat_activity
	Waiting     string        `json:"waiting_for,omitempty"` // the wait event, if it waits
	Since       time.Duration `json:"-"`                     // the age of its transaction
	Seconds     *float64      `json:"seconds"`               // Since in seconds; nil if not Visible
	Visible     bool          `json:"-"`                     // whether the role may read the details of the session
	Keys        int64         `json:"keys"`                  // the number of advisory locks; a transaction takes at most 32 of them
	Waiters     int64         `json:"waiters"`               // sessions that wait for one of these locks
	// Blocker is the root of the chain of blockers, or nil if the session waits for no lock.
	Blocker *Blocker `json:"blocked_by,omitempty"`
}

// Holders returns up to limit sessions whose transactions have written to idem.records and are
// older than old, the oldest first. Transactions whose age the role may not read come last.
func Holders(ctx context.Context, tx pgx.Tx, old time.Duration, limit int) ([]Holder, error) {
	return holders(ctx, tx, old, limit, nil)
}

// HolderOf returns the session that holds the advisory lock of a key, or nil if there is none. It
// finds only locks that were taken: a transaction that claims more than 32 keys locks the first of
// them only.
func HolderOf(ctx context.Context, tx pgx.Tx, lock int64) (*Holder, error) {
	found, err := holders(ctx, tx, 0, 1, &lock)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// holders returns the sessions that hold keys, or that hold one lock if lock is not nil.
//
// The query reads pg_locks once, because a read locks the whole lock table of the server. A claim
// inserts a record, so its transaction holds a RowExclusiveLock on the table. A claim also takes an
// advisory lock on a hash of the key. pg_locks shows the 64-bit number of such a lock as two
// halves, classid and objid, and with objsubid 1. A session that waits for it is a waiter of the
// session to which the lock is granted.
func holders(ctx context.Context, tx pgx.Tx, old time.Duration, limit int, lock *int64) ([]Holder, error) {
	rows, err := tx.Query(ctx, `WITH l AS MATERIALIZED (
			SELECT pid, granted, locktype, relation, classid, objid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (locktype = 'advisory' AND objsubid = 1 OR locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted)),
		holders AS (SELECT DISTINCT pid FROM l WHERE granted AND CASE WHEN $3::int8 IS NULL THEN relation IN (
				SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records')
			ELSE locktype = 'advisory' AND classid = ($3::int8 >> 32 & 4294967295)::oid AND objid = ($3::int8 & 4294967295)::oid END),
		keys AS (SELECT k.pid, count(DISTINCT (k.classid, k.objid)) AS held, count(w.pid) AS waiters FROM l k
			LEFT JOIN l w ON w.locktype = 'advisory' AND NOT w.granted AND w.classid = k.classid AND w.objid = k.objid
			WHERE k.locktype = 'advisory' AND k.granted GROUP BY k.pid)
		SELECT h.pid, coalesce(a.application_name, ''), coalesce(a.usename, '')::text, coalesce(a.state, ''), coalesce(a.wait_event_type || ': ' || a.wait_event, ''),
			coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, a.xact_start IS NOT NULL, coalesce(keys.held, 0), coalesce(keys.waiters, 0)
		FROM holders h LEFT JOIN pg_stat_activity a ON a.pid = h.pid LEFT JOIN keys ON keys.pid = h.pid
		WHERE h.pid <> pg_backend_pid() AND coalesce(a.backend_type, 'client backend') = 'client backend'
		  AND (a.xact_start IS NULL OR a.xact_start < clock_timestamp() - make_interval(secs => $1))
		ORDER BY a.xact_start NULLS LAST, h.pid LIMIT $2`, old.Seconds(), int64(limit), lock)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holder, err error) {
		var seconds float64
		err = row.Scan(&h.PID, &h.Application, &h.Role, &h.State, &h.Waiting, &seconds, &h.Visible, &h.Keys, &h.Waiters)
		if h.Since = time.Duration(seconds * float64(time.Second)); h.Visible {
			h.Seconds = &seconds
		}
		return h, err
	})
	if err != nil {
		return nil, err
	}
	waiting := make([]*Holder, len(found))
	for i := range found {
		waiting[i] = &found[i]
	}
	return found, addBlockers(ctx, tx, waiting...)
}
