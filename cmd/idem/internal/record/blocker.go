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

// Blocker is the session at the end of a chain of waiting sessions: it blocks others and waits for
// no lock itself. Fields that the role cannot see are zero.
type Blocker struct {
	PID         int32 // 0 for a prepared transaction, which has no session
	Application string
	Role        string
	State       string
	Since       time.Duration // age of its transaction
	QueryStart  *time.Time    // start of its current or last statement; nil if the role cannot see it
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
		return text + ", of which this role sees no more"
	}
	return fmt.Sprintf("%s, %s, in a transaction for %s, last statement at %s", text, b.State, page.Age(b.Since), page.Time(*b.QueryStart))
}

// Remedy returns advice on how to end the session.
func (b *Blocker) Remedy() string {
	if b.PID == 0 {
		return "ask its coordinator, then COMMIT PREPARED or ROLLBACK PREPARED"
	}
	return fmt.Sprintf("see what process %d does; SELECT pg_terminate_backend(%[1]d) ends it", b.PID)
}

// addBlockers sets the Blocker of each session that waits for a lock. If the role cannot see
// whether a session waits, addBlockers looks for a blocker as well.
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

// Blockers returns, for each of the sessions that wait for a lock, the session at the end of the
// chain that it waits for.
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

// waitGraph returns the blockers of each session, for the given sessions and for all sessions that
// they wait for. It asks about each session once, because pg_blocking_pids briefly locks the whole
// lock table.
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
			// pgx would scan the next array into the same memory.
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

// rootIn returns the first session that pid waits for, directly or through others, and that does
// not wait itself. Sessions in a cycle have no such session. The server resolves a cycle as a
// deadlock.
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
		// Breadth first, on a copy: next shares memory with blockedBy.
		next = append(next[:len(next):len(next)], blockedBy[b]...)
	}
	return 0, false
}

// describeBlockers reads the sessions from pg_stat_activity. A PID without a session gets a Blocker
// with nothing but the PID.
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
		found.Since = time.Duration(seconds * float64(time.Second))
		all[b.PID] = &found
		b.QueryStart = nil
		return nil
	})
	return all, err
}
