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

// Blocker is the session at the root of a chain of waiting sessions. It blocks other sessions and
// waits for no lock itself. A field that is hidden from the role is zero.
type Blocker struct {
	PID         int32         `json:"pid"` // 0 for a prepared transaction, which has no session
	Application string        `json:"application_name"`
	Role        string        `json:"role"`
	State       string        `json:"state"`
	Since       time.Duration `json:"-"`           // the age of its transaction
	Seconds     *float64      `json:"seconds"`     // Since in seconds; nil if hidden
	QueryStart  *time.Time    `json:"query_start"` // of its current or last statement; nil if hidden
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
	return fmt.Sprintf("%s, %s, in a transaction for %s, last statement at %s", text, b.State, page.Age(b.Since), page.Time(*b.QueryStart))
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
		if strings.HasPrefix(h.Waiting, "Lock:") || !h.Visible {
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
// waits for no lock has no entry.
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
		rows, err := tx.Query(ctx, "SELECT pid, pg_blocking_pids(pid) FROM (SELECT DISTINCT unnest($1::int4[])) AS asked (pid)", next)
		if err != nil {
			return nil, err
		}
		next = nil
		var pid int32
		var blockers []int32
		seen := map[int32]bool{}
		_, err = pgx.ForEachRow(rows, []any{&pid, &blockers}, func() error {
			blockedBy[pid] = blockers
			for _, b := range blockers {
				seen[b] = true
			}
			// ForEachRow scans every row into the same variable. Without the reset, the next row
			// could overwrite the array that blockedBy now holds.
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
	rows, err := tx.Query(ctx, `SELECT pid, coalesce(application_name, ''), coalesce(usename, '')::text, coalesce(state, ''),
			coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8, query_start
		FROM pg_stat_activity WHERE pid = ANY ($1::int4[])`, pids)
	if err != nil {
		return nil, err
	}
	var b Blocker
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&b.PID, &b.Application, &b.Role, &b.State, &seconds, &b.QueryStart}, func() error {
		found := b
		if found.Since = time.Duration(seconds * float64(time.Second)); b.QueryStart != nil {
			age := seconds
			found.Seconds = &age
		}
		all[b.PID] = &found
		b.QueryStart = nil
		return nil
	})
	return all, err
}
