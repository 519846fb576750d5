package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/purge"
)

const turnovers, steps = 10, 10

// renew replaces all records ten times, a tenth of them at a time, as calls do: each is inserted, and completed in the same
// transaction. What has had its time is purged. Vacuum is left to the server, by the settings of the table.
func (h *house) renew(ctx context.Context) (met bool, err error) {
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
	ofHeap, ofIndex := float64(heap)/float64(freshHeap), float64(index)/float64(freshIndex)
	return bars(
		bar{"heap over that of a fresh table with the live rows", ofHeap <= maxSize, fmt.Sprintf("%.2f", ofHeap)},
		bar{"index over that of a fresh table with the live rows", ofIndex <= maxSize, fmt.Sprintf("%.2f", ofIndex)},
	), nil
}

// step adds records, and purges those that have been there for a whole turnover. It then waits for vacuum.
func (h *house) step(ctx context.Context, step int) error {
	err := h.exec(ctx, `
		with claimed as (
			insert into idem.records (scope, key, hash, operation_id, created_at, expires_at, state)
			select 'a scope', gen_random_uuid(), sha256(int8send(i)), gen_random_uuid(), now(), now() + interval '1 day', 'processing'
			from generate_series(1, $1::int8) i returning 1
		) select count(*) from claimed`, h.live/steps)
	if err != nil {
		return err
	}
	err = h.exec(ctx, `update idem.records set state = 'completed', status = $1, completed_at = now(),
		header = '{"Content-Type":["application/json"]}', body = convert_to(rpad('', 200, 'x'), 'UTF8') where state = 'processing'`, step)
	if err != nil || step < steps {
		return err
	}
	if err := h.exec(ctx, "update idem.records set expires_at = now() - interval '2 hours' where status = $1", step-steps); err != nil {
		return err
	}
	rep, err := purge.Once(ctx, h.pool, purge.Options{Share: 1})
	if err != nil {
		return err
	}
	if rep.Deleted != h.live/steps {
		return fmt.Errorf("step %d: %v", step, rep)
	}
	return h.awaitVacuum(ctx)
}

// awaitVacuum waits until the server has vacuumed of its own accord: in production, a step takes hours.
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
