package purge

import "testing"

// Vacuum is run after every step, as the server would do by itself, so that the test need not wait for it.
func TestTableStaysAsLargeAsWhatIsRetainedAfterTenTurnovers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec("alter table idem.records set (autovacuum_enabled = off)")
	const live, steps, turnovers = 3000, 6, 10
	insert := func(step int) {
		h.exec(`insert into idem.records (scope, key, hash, operation_id, created_at, expires_at, state, status, completed_at, header, body)
			select 'a scope', gen_random_uuid(), sha256(i::text::bytea), gen_random_uuid(), now(), now() + '1 day'::interval, 'processing',
			       null, null, null, null from generate_series(1, $1) i`, live/steps)
		h.exec(`update idem.records set state = 'completed', status = $1, completed_at = now(), header = '{"A":["b"]}', body = repeat('x', 200)::bytea
			where state = 'processing'`, step)
	}
	size := func(table string) (heap, index int64) {
		return h.count("select pg_relation_size($1::regclass)", table), h.count("select pg_indexes_size($1::regclass)", table)
	}
	for step := range turnovers * steps {
		insert(step)
		if step >= steps {
			h.exec("update idem.records set expires_at = now() - '2 hours'::interval where status = $1", step-steps)
			if rep := h.once(swift()); rep.Deleted != live/steps {
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
	t.Logf("heap %.2f, index %.2f of a fresh table with the same rows", ratio(heap, freshHeap), ratio(index, freshIndex))
	if ratio(heap, freshHeap) > 1.5 || ratio(index, freshIndex) > 1.5 {
		t.Errorf("the heap has %d bytes, the index %d; a fresh table with the same rows has %d and %d", heap, index, freshHeap, freshIndex)
	}
}

func ratio(a, b int64) float64 { return float64(a) / float64(b) }

// A sweep updates its row with every portion. That must leave nothing behind but in its own page.
func TestTableOfSweepsStaysSmall(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec("alter table idem.sweeps set (autovacuum_enabled = off)")
	h.records(3000, "live", "completed", "-1 hour")
	o := swift()
	o.Pages = 1
	for range 3 {
		h.once(o)
	}
	if pages := h.count("select pg_relation_size('idem.sweeps') / current_setting('block_size')::int"); pages > 2 {
		t.Errorf("idem.sweeps has %d pages after three sweeps of %d portions", pages, h.pages())
	}
}
