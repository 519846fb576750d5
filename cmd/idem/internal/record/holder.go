package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

// Holder is a session whose transaction has written to idem.records. The session holds the keys
// that the transaction has claimed. A field that the connected role may not read is zero.
type Holder struct {
	PID         int32    `json:"pid"`
	Application string   `json:"application_name"`
	Role        string   `json:"role"`
	State       string   `json:"state"`                 // as in pg_stat_activity
	Waiting     string   `json:"waiting_for,omitempty"` // the wait event, if it waits
	Seconds     *float64 `json:"seconds"`               // the age of its transaction; nil if not Visible
	Keys        int64    `json:"keys"`                  // the number of advisory locks; a transaction takes at most 32 of them
	Waiters     int64    `json:"waiters"`               // sessions that wait for one of these locks
	// Blocker is the root of the chain of blockers, or nil if the session waits for no lock.
	Blocker *Blocker `json:"blocked_by,omitempty" db:"-"`
}

// Visible reports whether the connected role may read the details of the session.
func (h *Holder) Visible() bool { return h.Seconds != nil }

// Since returns the age of the transaction of the session, or 0 if the session is not Visible.
func (h *Holder) Since() time.Duration { return durationOf(h.Seconds) }

// durationOf converts seconds to a duration, and nil to 0.
func durationOf(seconds *float64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds * float64(time.Second))
}

// LongHeld is how long a transaction may hold a key before the page warns about it. It is the
// default of idem stuck --older.
const LongHeld = time.Minute

// IsLong reports whether the transaction has held its keys for LongHeld or longer.
func (h *Holder) IsLong() bool { return h.Since() >= LongHeld }

// Holders returns up to limit sessions whose transactions have written to idem.records and are
// older than old, the oldest first. Transactions whose age the role may not read come last.
func Holders(ctx context.Context, tx pgx.Tx, old time.Duration, limit int) ([]Holder, error) {
	return holders(ctx, tx, old, limit, nil)
}

// HolderOf returns the session that holds the advisory lock of a key, or nil if there is none. A
// transaction that claims more than 32 keys takes locks for the first 32 only, so HolderOf does not
// find it by a later key.
func HolderOf(ctx context.Context, tx pgx.Tx, lock int64) (*Holder, error) {
	found, err := holders(ctx, tx, 0, 1, &lock)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// holders returns the sessions that hold keys. If lock is not nil, it returns only the session that
// holds this advisory lock.
//
// The query reads pg_locks once, because a read locks the whole lock table of the server. A claim
// inserts a record, so its transaction holds a RowExclusiveLock on the table. A claim also takes an
// advisory lock on a hash of the key. pg_locks shows the 64-bit number of such a lock as two
// halves, classid and objid, and with objsubid 1. A session that waits for such a lock is a waiter
// of the session to which the lock is granted.
func holders(ctx context.Context, tx pgx.Tx, old time.Duration, limit int, lock *int64) ([]Holder, error) {
	rows, _ := tx.Query(ctx, `WITH l AS MATERIALIZED (
			SELECT pid, granted, locktype, relation, classid, objid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (locktype = 'advisory' AND objsubid = 1 OR locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted)),
		holders AS (SELECT DISTINCT pid FROM l WHERE granted AND CASE WHEN $3::int8 IS NULL THEN relation IN (
				SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records')
			ELSE locktype = 'advisory' AND classid = ($3::int8 >> 32 & 4294967295)::oid AND objid = ($3::int8 & 4294967295)::oid END),
		keys AS (SELECT k.pid, count(DISTINCT (k.classid, k.objid)) AS held, count(w.pid) AS waiters FROM l k
			LEFT JOIN l w ON w.locktype = 'advisory' AND NOT w.granted AND w.classid = k.classid AND w.objid = k.objid
			WHERE k.locktype = 'advisory' AND k.granted GROUP BY k.pid)
		SELECT h.pid, coalesce(a.application_name, ''), coalesce(a.usename, '')::text, coalesce(a.state, ''), coalesce(a.wait_event_type || ': ' || a.wait_event, ''),
			extract(epoch FROM clock_timestamp() - a.xact_start)::float8, coalesce(keys.held, 0), coalesce(keys.waiters, 0)
		FROM holders h LEFT JOIN pg_stat_activity a ON a.pid = h.pid LEFT JOIN keys ON keys.pid = h.pid
		WHERE h.pid <> pg_backend_pid() AND coalesce(a.backend_type, 'client backend') = 'client backend'
		  AND (a.xact_start IS NULL OR a.xact_start < clock_timestamp() - make_interval(secs => $1))
		ORDER BY a.xact_start NULLS LAST, h.pid LIMIT $2`, old.Seconds(), int64(limit), lock) // CollectRows returns the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Holder])
	if err != nil {
		return nil, err
	}
	waiting := make([]*Holder, len(found))
	for i := range found {
		waiting[i] = &found[i]
	}
	return found, addBlockers(ctx, tx, waiting...)
}

// Blocker is the session at the root of a chain of waiting sessions. It blocks other sessions and
// waits for no lock itself. A field that the connected role may not read is zero.
type Blocker struct {
	PID         int32      `json:"pid"` // 0 for a prepared transaction, which has no session
	Application string     `json:"application_name"`
	Role        string     `json:"role"`
	State       string     `json:"state"`
	Seconds     *float64   `json:"seconds"`     // the age of its transaction; nil if hidden
	QueryStart  *time.Time `json:"query_start"` // of its current or last statement; nil if hidden
}

// String describes the session in one line.
func (b *Blocker) String() string {
	if b.PID == 0 {
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	text := fmt.Sprintf("process %d", b.PID)
	if b.Application != "" {
		text += fmt.Sprintf(" (%s)", page.Safe(b.Application))
	}
	if b.Role != "" {
		text += " of the role " + page.Safe(b.Role)
	}
	if b.QueryStart == nil {
		return text + " (this role sees no more of it)"
	}
	return fmt.Sprintf("%s, %s, in a transaction for %s, last statement at %s", text, b.State, page.Age(durationOf(b.Seconds)), page.Time(*b.QueryStart))
}

// Remedy returns what a person can do to end the session.
func (b *Blocker) Remedy() string {
	if b.PID == 0 {
		return "ask its coordinator, then COMMIT PREPARED or ROLLBACK PREPARED"
	}
	return fmt.Sprintf("find out what process %d does; SELECT pg_terminate_backend(%[1]d) ends it", b.PID)
}

// addBlockers sets the Blocker of each session that waits for a lock. A session whose wait event
// the role may not read is looked up as well, because it may wait for a lock.
func addBlockers(ctx context.Context, tx pgx.Tx, waiting ...*Holder) error {
	var pids []int32
	for _, h := range waiting {
		if strings.HasPrefix(h.Waiting, "Lock:") || !h.Visible() {
			pids = append(pids, h.PID)
		}
	}
	blockers, err := Blockers(ctx, tx, pids)
	for _, h := range waiting {
		h.Blocker = blockers[h.PID]
	}
	return err
}

// Blockers returns the root of the chain of blockers for each of the sessions pids. A session that
// waits for no lock has no entry. A person has to act on the root: ending a session in the middle
// of the chain frees nothing for long.
func Blockers(ctx context.Context, tx pgx.Tx, pids []int32) (map[int32]*Blocker, error) {
	blockedBy, err := waitGraph(ctx, tx, pids)
	if err != nil {
		return nil, err
	}
	rootOf := map[int32]int32{}
	for _, pid := range pids {
		if root, ok := rootIn(blockedBy, pid); ok {
			rootOf[pid] = root
		}
	}
	if len(rootOf) == 0 {
		return nil, nil
	}
	found, err := describeBlockers(ctx, tx, slices.Collect(maps.Values(rootOf)))
	if err != nil {
		return nil, err
	}
	all := map[int32]*Blocker{}
	for pid, root := range rootOf {
		all[pid] = found[root]
	}
	return all, nil
}

// waitGraph returns which sessions block each session. It starts with pids and follows the blockers
// until a round finds no new session. Each session is queried once, because pg_blocking_pids locks
// the whole lock table for a moment.
func waitGraph(ctx context.Context, tx pgx.Tx, pids []int32) (map[int32][]int32, error) {
	blockedBy := map[int32][]int32{}
	for next := pids; len(next) > 0; {
		// ForEachRow returns the error of Query.
		rows, _ := tx.Query(ctx, "SELECT pid, pg_blocking_pids(pid) FROM (SELECT DISTINCT unnest($1::int4[])) AS asked (pid)", next)
		next = nil
		var pid int32
		var blockers []int32
		seen := map[int32]bool{}
		_, err := pgx.ForEachRow(rows, []any{&pid, &blockers}, func() error {
			blockedBy[pid] = blockers
			for _, b := range blockers {
				seen[b] = true
			}
			// ForEachRow scans every row into the same variable. Without the reset, the next row
			// could overwrite the array to which blockedBy now refers.
			blockers = nil
			return nil
		})
		if err != nil {
			return nil, err
		}
		for b := range seen {
			if _, known := blockedBy[b]; !known {
				next = append(next, b)
			}
		}
	}
	return blockedBy, nil
}

// rootIn returns the root of the chain of blockers of pid: the nearest session in the graph that
// waits for no lock itself. It searches breadth first. It returns false if pid waits for no lock.
// It also returns false for a cycle, which the server resolves as a deadlock.
func rootIn(blockedBy map[int32][]int32, pid int32) (root int32, ok bool) {
	seen := map[int32]bool{pid: true}
	for next := blockedBy[pid]; len(next) > 0; next = next[1:] {
		b := next[0]
		switch {
		case seen[b]:
			continue
		case len(blockedBy[b]) == 0:
			return b, true
		}
		seen[b] = true
		// The full slice expression makes append copy. Otherwise append could write into the array
		// of blockedBy.
		next = append(next[:len(next):len(next)], blockedBy[b]...)
	}
	return 0, false
}

// describeBlockers reads pg_stat_activity for the given process ids. Process id 0, a prepared
// transaction, has no row there and gets a Blocker without details.
func describeBlockers(ctx context.Context, tx pgx.Tx, pids []int32) (map[int32]*Blocker, error) {
	all := map[int32]*Blocker{}
	for _, pid := range pids {
		all[pid] = &Blocker{PID: pid}
	}
	rows, _ := tx.Query(ctx, `SELECT pid, coalesce(application_name, ''), coalesce(usename, '')::text, coalesce(state, ''),
			CASE WHEN query_start IS NOT NULL THEN coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8 END, query_start
		FROM pg_stat_activity WHERE pid = ANY ($1::int4[])`, pids) // CollectRows returns the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Blocker])
	for _, b := range found {
		all[b.PID] = b
	}
	return all, err
}
