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
	// Blocker is the root of the chain of blockers, or nil if the session waits for no lock.
	Blocker *Blocker `json:"blocked_by,omitempty"`
}

// sessions is the beginning of a query for the sessions that hold certain locks. The caller appends
// a condition on pg_locks, the closing parenthesis with the alias l, and the join with
// pg_stat_activity a.
const sessions = `
	SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, '')::text, coalesce(a.state, ''),
		coalesce(a.wait_event_type || ': ' || a.wait_event, ''),
		coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, a.xact_start IS NOT NULL
	FROM (SELECT DISTINCT pid FROM pg_locks WHERE granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND `

// Holders returns the sessions whose transactions are older than old, the oldest first.
// Transactions whose age the role may not read come last.
func Holders(ctx context.Context, tx pgx.Tx, old time.Duration) ([]Holder, error) {
	rows, err := tx.Query(ctx, sessions+`locktype = 'relation' AND mode = 'RowExclusiveLock' AND relation IN (
			SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records')) l
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.pid <> pg_backend_pid() AND coalesce(a.backend_type, 'client backend') = 'client backend'
		  AND (a.xact_start IS NULL OR a.xact_start < clock_timestamp() - make_interval(secs => $1))
		ORDER BY a.xact_start NULLS LAST`, old.Seconds())
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanHolder)
	if err != nil {
		return nil, err
	}
	waiting := make([]*Holder, len(found))
	for i := range found {
		waiting[i] = &found[i]
	}
	return found, addBlockers(ctx, tx, waiting...)
}

// HolderOf returns the session that holds the advisory lock of a key, or nil if there is none. It
// finds only locks that were taken: a transaction that claims more than 32 keys locks the first of
// them only. pg_locks shows a 64-bit lock number as two halves, classid and objid.
func HolderOf(ctx context.Context, tx pgx.Tx, lock int64) (*Holder, error) {
	rows, err := tx.Query(ctx, sessions+`locktype = 'advisory' AND objsubid = 1 AND classid = ($1::int8 >> 32 & 4294967295)::oid AND objid = ($1::int8 & 4294967295)::oid) l
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.pid <> pg_backend_pid()`, lock)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanHolder)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], addBlockers(ctx, tx, &found[0])
}

func scanHolder(row pgx.CollectableRow) (Holder, error) {
	var h Holder
	var seconds float64
	err := row.Scan(&h.PID, &h.Application, &h.Role, &h.State, &h.Waiting, &seconds, &h.Visible)
	if h.Since = time.Duration(seconds * float64(time.Second)); h.Visible {
		h.Seconds = &seconds
	}
	return h, err
}
