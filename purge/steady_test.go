package purge

import (
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgtest"
)

// The test inserts records at a rate of one batch per step. A step is an hour of a simulated clock;
// Grace is the difference between that clock and the real one. The test runs VACUUM after each
// step, instead of waiting for autovacuum.
func TestOnce_TableSizeStaysStable(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	h := newHouse(t)
	const live, steps, turnovers = 1200, 6, 10
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	complete := func(step int) {
		h.exec(fmt.Sprintf(`DO $$
			DECLARE name text;
			BEGIN
				FOR i IN 1..%d LOOP
					name := gen_random_uuid();
					INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
					VALUES ('a scope', name, sha256(name::bytea), gen_random_uuid(), now(), '%s', 'processing');
					UPDATE idem.records SET state = 'completed', status = 201, completed_at = now(), header = '{"A":["b"]}',
						body = convert_to(rpad(name, 200, 'x'), 'UTF8') WHERE scope = 'a scope' AND key = name;
					COMMIT;
				END LOOP;
			END $$`, live/steps, epoch.Add(time.Duration(step)*time.Hour).Format(time.RFC3339)))
	}
	size := func(table string) (heap, index int64) {
		return h.count("select pg_relation_size($1::regclass)", table), h.count("select pg_indexes_size($1::regclass)", table)
	}
	turnOver := func() (heapRatio, indexRatio float64) {
		for step := range turnovers * steps {
			complete(step)
			if step >= steps {
				o := swift()
				o.Grace = time.Since(epoch.Add(time.Duration(step-steps)*time.Hour + time.Minute))
				if rep := h.once(o); rep.Deleted != live/steps {
					t.Fatalf("step %d: %v", step, rep)
				}
			}
			h.exec("vacuum idem.records")
		}
		if n := h.count("select count(*) from idem.records"); n != live {
			t.Fatalf("%d records are left", n)
		}
		heap, index := size("idem.records")
		h.exec("create table fresh (like idem.records including all)")
		h.exec("insert into fresh select * from idem.records order by hash") // at random, as they came
		freshHeap, freshIndex := size("fresh")
		t.Logf("heap %d, index %d bytes; of a fresh table with the same rows %d and %d", heap, index, freshHeap, freshIndex)
		return float64(heap) / float64(freshHeap), float64(index) / float64(freshIndex)
	}
	// A snapshot of the server itself, such as for an ANALYZE of the catalog, keeps VACUUM from
	// removing rows. Then the test retries.
	for range 3 {
		if heap, index := turnOver(); heap <= 1.5 && index <= 1.5 {
			return
		}
		h.exec("drop table fresh")
		h.exec("truncate idem.records, idem.sweeps")
	}
	t.Error("the table or its index is more than half as large again as a fresh one")
}

// A sweep updates its row after every portion. The dead versions must be removed within their page.
// A long transaction elsewhere on the server could keep them alive, so the test has a server of its
// own.
func TestSweep_SweepsTableStaysSmall(t *testing.T) {
	t.Parallel()
	primary, _ := ownServer(t, "autovacuum=off")
	h := &house{t, primary}
	h.records(3000, "live", "completed", "-1 hour")
	o := swift()
	o.Pages = 1
	for range 3 {
		h.once(o)
	}
	if pages := h.count("select pg_relation_size('idem.sweeps') / current_setting('block_size')::int"); pages > 1 {
		t.Errorf("idem.sweeps has %d pages after three sweeps of %d portions", pages, h.pages())
	}
}
