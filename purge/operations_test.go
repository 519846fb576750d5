package purge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// operations inserts n operations, each with a step and a signal, that have ended for the given
// time.
func (h *house) operations(n int, name, state, ended string) {
	h.t.Helper()
	h.exec(`with o as (
			insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, ended_at)
			select gen_random_uuid(), 'a scope', format('%s %s', $2::text, i), '', $2, 0, now(), 1, $3, false, '', 1, now(), now(), 0, 0,
			       now() - $4::interval from generate_series(1, $1) i returning id
		), s as (
			insert into idem.steps (operation_id, seq, kind, name, recorded_at, outcome) select id, 1, 'step', '', now(), 'done' from o
		)
		insert into idem.signals (operation_id, name, sent_at, taken) select id, '', now(), true from o`, n, name, state, ended)
}

func (h *house) wantOperations(want map[string]int64) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.remaining("name", "idem.operations")); diff != "" {
		h.t.Errorf("operations that are left (-want +got):\n%s", diff)
	}
	all := h.count("select count(*) from idem.operations")
	for _, of := range []string{"idem.steps", "idem.signals"} {
		if n := h.count("select count(*) from " + of + " join idem.operations o on o.id = operation_id"); n != all || h.count("select count(*) from "+of) != all {
			h.t.Errorf("%s are not those of the operations that are left", of)
		}
	}
}

func TestOnce_DeletesEndedOperationsWithStepsAndSignals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	left := map[string]int64{}
	for _, o := range []struct {
		name, state, ended string
		stays              bool
	}{
		{"running", "running", "1 year", true}, {"parked", "parked", "1 year", true},
		{"completed just now", "completed", "6 days 23 hours", true}, {"completed", "completed", "8 days", false},
		{"failed", "failed", "8 days", false}, {"undone", "undone", "8 days", false}, {"undone just now", "undone", "1 day", true},
	} {
		h.operations(200, o.name, o.state, o.ended)
		if o.stays {
			left[o.name] = 200
		}
	}
	h.exec("analyze idem.operations, idem.steps, idem.signals")
	h.records(10, "running", "running", "1 year") // the record of an operation
	o := swift()
	o.DryRun = true
	h.wantCounts(h.once(o), Finished, Counts{Deleted: 600, Kept: 810})
	pool := h.asRole(t, "select (ctid, state, expires_at), update (expires_at), delete", "select, insert, update")
	for _, grant := range []string{
		"select (ctid, id, state, ended_at), update (ended_at), delete on idem.operations", "select (ctid, operation_id), delete on idem.steps, idem.signals",
	} {
		h.exec("grant " + grant + " to " + pgx.Identifier{pool.Config().ConnConfig.RuntimeParams["role"]}.Sanitize())
	}
	o.DryRun = false
	rep := h.onceOn(pool, o)
	if len(rep.Tables) < 2 || rep.Tables[1].Table != "operations" || rep.Tables[1].Deleted != 600 || rep.Tables[1].Kept != 800 {
		t.Errorf("%v", rep)
	}
	h.wantOperations(left)
	h.wantLeft(map[string]int64{"running": 10})

	o.Operations = 12 * time.Hour
	h.wantCounts(h.once(o), Finished, Counts{Deleted: 400, Kept: 410})
	h.wantOperations(map[string]int64{"running": 200, "parked": 200})
}

// A portion reads only the steps of the operations that it deletes, however many steps there are.
func TestOnce_FindsStepsByIndex(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.operations(3000, "completed", "completed", "8 days")
	h.exec("analyze idem.operations, idem.steps, idem.signals")
	part := &db.Part{Relation: "idem.operations"}
	engine := &txn.Engine{Pool: h.pool, Options: deleting, Limits: txn.DefaultLimits}
	if err := engine.Query(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	tx := h.begin()
	if _, err := tx.Exec(t.Context(), db.LimitPortionSQL, "0", "0", "0"); err != nil {
		t.Fatal(err)
	}
	sql := strings.NewReplacer("$1", "'7 days'", "$2", "'(0,0)'", "$3", "'(1,0)'").Replace(deletionOf(operations, part).SQL)
	rows, _ := tx.Query(t.Context(), "explain "+sql)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on steps") || strings.Contains(text, "Merge Join") ||
		!strings.Contains(text, "operation_id = gone_") {
		t.Errorf("%v:\n%s", err, text)
	}
}
