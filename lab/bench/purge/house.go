package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/schema"
)

// house is the measured database.
type house struct {
	*options
	pool *pgxpool.Pool
}

// describe applies the migrations and prints the environment of the measurement.
func (h *house) describe(ctx context.Context) error {
	if err := schema.UpAt(ctx, h.pool.Config().ConnString()); err != nil {
		return err
	}
	version, err := text(ctx, h, "select concat(current_setting('server_version'), ', shared_buffers ', current_setting('shared_buffers'), ', fsync ', current_setting('fsync'))")
	if err != nil {
		return err
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%s: PostgreSQL %s, %d processors, load %s\n", time.Now().Format(time.DateTime), version, runtime.NumCPU(), strings.TrimSpace(string(load)))
	return nil
}

func (h *house) exec(ctx context.Context, sql string, args ...any) error {
	_, err := h.pool.Exec(ctx, sql, args...)
	return err
}

func (h *house) count(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = h.pool.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

func text(ctx context.Context, h *house, sql string) (s string, err error) {
	err = h.pool.QueryRow(ctx, sql).Scan(&s)
	return s, err
}

// fill inserts completed records with responses of 200 bytes. Every second record has expired.
func (h *house) fill(ctx context.Context, records int64) error {
	const portion = 500_000
	for from := int64(1); from <= records; from += portion {
		err := h.exec(ctx, `
			insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
			select 'tenant-1/POST orders', gen_random_uuid(), sha256(int8send(i)), gen_random_uuid(), now() - interval '1 day',
			       now() + case when i % 2 = 0 then interval '1 day' else interval '-2 hours' end, 'completed', 201, now() - interval '1 day',
			       '{"Content-Type":["application/json"]}', convert_to(rpad(i::text, 200, 'x'), 'UTF8')
			from generate_series($1::int8, $2::int8) i`, from, min(from+portion-1, records))
		if err != nil {
			return err
		}
	}
	return h.exec(ctx, "vacuum analyze idem.records")
}

// fingerprint returns a text that changes if any of the live records from fill is changed, locked
// or deleted.
func (h *house) fingerprint(ctx context.Context) (string, error) {
	return text(ctx, h, `select concat(count(*), ' live records, ', sum(hashtextextended(concat(ctid, ' ', xmin, ' ', xmax), 0)))
		from idem.records where expires_at > now() and created_at < now() - interval '12 hours'`)
}
