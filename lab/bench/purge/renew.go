package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/purge"
)

const turnovers, steps = 10, 10

// renew replaces all records ten times, a tenth at a time. As in real calls, a record is inserted
// and completed in one transaction. Expired records are purged. Only autovacuum cleans up, with the
// settings of the table.
func (h *house) renew(ctx context.Context) (met bool, err error) {
	if h.live == 0 {
		return true, nil
	}
	if err := h.exec(ctx, "truncate idem.records"); err != nil {
		return false, err
	}
	begin := time.Now()
	vacuums, err := h.count(ctx, "select autovacuum_count from pg_stat_user_tables where relid = 'idem.records'::regclass")
	if err != nil {
		return false, err
	}
	for step := range turnovers * steps {
		if err := h.step(ctx, step); err != nil {
			return false, err
		}
	}
	after, err := h.count(ctx, "select autovacuum_count from pg_stat_user_tables where relid = 'idem.records'::regclass")
	if err != nil {
		return false, err
	}
	heap, index, err := h.sizes(ctx, "idem.records")
	if err != nil {
		return false, err
	}
	err = errors.Join(h.exec(ctx, "create table fresh (like idem.records including all)"), h.exec(ctx, "insert into fresh select * from idem.records order by hash"))
	if err != nil {
		return false, err
	}
	freshHeap, freshIndex, err := h.sizes(ctx, "fresh")
	if err != nil {
		return false, err
	}
	fmt.Printf("%d records renewed ten times in %v, with %d vacuums by the server\n", h.live, time.Since(begin).Round(time.Second), after-vacuums)
	// The deletion of random keys leaves no index page empty, so that the index becomes less dense
	// than the heap.
	fmt.Printf("over a fresh table with the same rows: heap %.2f, index %.2f\n", float64(heap)/float64(freshHeap), float64(index)/float64(freshIndex))
	together := float64(heap+index) / float64(freshHeap+freshIndex)
	return bars(bar{"heap and index over those of a fresh table with the same rows", together <= maxSize, fmt.Sprintf("%.2f", together)}), nil
}

// step adds records, purges those that are older than a whole turnover, and then waits for
// autovacuum. A step is one hour of a simulated clock that starts at epoch. The expiry times follow
// that clock, and grace bridges the difference between it and the real clock.
func (h *house) step(ctx context.Context, step int) error {
	if err := h.exec(ctx, fmt.Sprintf(complete, h.live/steps, step)); err != nil || step < steps {
		return err
	}
	grace := time.Since(epoch.Add(time.Duration(step-steps)*time.Hour + time.Minute))
	rep, err := purge.Once(ctx, h.pool, purge.Options{Share: 1, Grace: grace})
	if err != nil {
		return err
	}
	if rep.Deleted != h.live/steps {
		return fmt.Errorf("step %d: %v", step, rep)
	}
	return h.awaitVacuum(ctx)
}

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// complete simulates many calls: each claims a record and completes it in its own transaction.
const complete = `DO $$
DECLARE
    name text;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', false);
    FOR i IN 1..%[1]d LOOP
        name := gen_random_uuid();
        INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
        VALUES ('tenant-1/POST orders', name, sha256(name::bytea), gen_random_uuid(), now(), '2020-01-01 00:00Z'::timestamptz + %[2]d * interval '1 hour', 'processing');
        UPDATE idem.records SET state = 'completed', status = 201, completed_at = now(), header = '{"Content-Type":["application/json"]}',
            body = convert_to(rpad(name, 200, 'x'), 'UTF8') WHERE scope = 'tenant-1/POST orders' AND key = name;
        COMMIT;
    END LOOP;
END $$`

// awaitVacuum waits until autovacuum has cleaned the table. In production a step takes hours, which
// is long enough for that.
func (h *house) awaitVacuum(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		dead, err := h.count(ctx, "select n_dead_tup from pg_stat_user_tables where relid = 'idem.records'::regclass")
		if err != nil || dead < h.live/steps/2 {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the server has not vacuumed for two minutes")
}

func (h *house) sizes(ctx context.Context, table string) (heap, index int64, err error) {
	err = h.pool.QueryRow(ctx, "select pg_relation_size($1::regclass), pg_indexes_size($1::regclass)", table).Scan(&heap, &index)
	return heap, index, err
}
