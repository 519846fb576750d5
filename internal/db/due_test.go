package db

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
)

// planned is a node of an executed plan, with the pages and rows that it read.
type planned struct {
	Relation string  `json:"Relation Name"`
	Loops    float64 `json:"Actual Loops"`
	Rows     float64 `json:"Actual Rows"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []planned
}

// rows returns how many rows of a table the plan has read.
func (p *planned) rows(of string) (n float64) {
	if p.Relation == of {
		n = p.Loops * (p.Rows + p.Removed)
	}
	for i := range p.Plans {
		n += p.Plans[i].rows(of)
	}
	return n
}

// explain executes a statement and rolls it back. It returns how many pages, and how many rows of
// idem.operations, the statement has read.
func explain(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (pages int, operations float64) {
	t.Helper()
	var told []byte
	undone := errors.New("undone")
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(context.Background(), "explain (analyze, buffers, format json) "+sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&told)
		return errors.Join(err, undone)
	})
	var plans []struct{ Plan planned }
	if e := json.Unmarshal(told, &plans); e != nil || err.Error() != undone.Error() || len(plans) != 1 {
		t.Fatalf("%v, %v: %s", err, e, told)
	}
	p := &plans[0].Plan
	return p.Hit + p.Read, p.rows("operations")
}

// operationsOf returns a function that executes SQL, and one that inserts n operations. The wake_at
// of the operations are one interval apart from each other, beginning one interval from now.
func operationsOf(t *testing.T, pool *pgxpool.Pool) (exec func(sql string, args ...any), insert func(n int, name, state, wake string)) {
	exec = func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	insert = func(n int, name, state, wake string) {
		t.Helper()
		exec(`insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts)
			select gen_random_uuid(), 's', g::text, '', $2, 0, now(), 1, $3, false, 'pause', 1, now(), now() + $4::text::interval * g, 0, 0
			from generate_series(1, $1) g`, n, name, state, wake)
	}
	return exec, insert
}

func TestDueOperations_ReadNothingOfWhatSleeps(t *testing.T) {
	t.Parallel()
	const asleep, due, signalled, early, room = 100_000, 20, 20, 20, 16
	pool := pgtest.New(t)
	exec, insert := operationsOf(t, pool)
	for _, table := range []string{"operations", "steps", "signals"} { // no autovacuum in between
		exec(`alter table idem.` + table + ` set (autovacuum_enabled = false)`)
	}
	insert(asleep, "asleep", "running", "1 minute")
	insert(due, "due", "running", "-1 minute")
	insert(signalled, "signalled", "running", "1 hour")
	insert(early, "early", "running", "1 hour")
	exec(`insert into idem.steps select id, 1, case name when 'early' then 'sleep' else 'await' end, 'pause', null, now(), 'waiting', null
		from idem.operations where name in ('signalled', 'early')`)
	exec(`insert into idem.signals select id, 'pause', now(), null, false from idem.operations where name in ('signalled', 'early')`)
	names := "{asleep,due,signalled,early}"
	for _, state := range []string{"before the first analyze", "after it"} {
		for what, ask := range map[string]func() (int, float64){
			"TakeOperations": func() (int, float64) { return explain(t, pool, TakeOperationsSQL, 1, names, "{}", true, room) },
			"DueOperations":  func() (int, float64) { return explain(t, pool, DueOperationsSQL, room, names, "{}") },
		} {
			pages, rows := ask()
			t.Logf("%s, %s: %d pages, %v rows", what, state, pages, rows)
			// The limits allow some pages for each due, signalled or early operation, and for each
			// claim.
			if pages > 1000 || rows > 3*(due+signalled+early) {
				t.Errorf("%s, %s: touches %d pages, and looks at %v operations", what, state, pages, rows)
			}
		}
		exec(`analyze idem.operations, idem.steps, idem.signals`)
	}
}

// The statistics are from a time with few running operations, or there are none.
func TestDueOperations_ReadNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	const ended, due, room = 20_000, 3_000, 16
	for _, usual := range []int{0, 100} {
		pool := pgtest.New(t)
		exec, insert := operationsOf(t, pool)
		exec(`alter table idem.operations set (autovacuum_enabled = false)`)
		if usual > 0 {
			insert(ended, "backlog", "completed", "-1 minute")
			insert(usual, "backlog", "running", "-1 minute")
			exec(`analyze idem.operations`)
		}
		insert(due, "backlog", "running", "-1 second")
		for what, ask := range map[string]func() (int, float64){
			"TakeOperations": func() (int, float64) { return explain(t, pool, TakeOperationsSQL, 1, "{backlog}", "{}", true, room) },
			"DueOperations":  func() (int, float64) { return explain(t, pool, DueOperationsSQL, room, "{backlog}", "{}") },
		} {
			pages, rows := ask()
			if pages > 500 || rows > 4*room {
				t.Errorf("%s, usually %d: touches %d pages, and looks at %v operations of %d", what, usual, pages, rows, due)
			}
		}
	}
}
