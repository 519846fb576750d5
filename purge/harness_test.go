package purge

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// limit bounds how long a test waits for an event that must happen.
const limit = waiting.Limit

// await returns the next value of c, or the zero value once c is closed.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// house is a test database with records.
type house struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func newHouse(t testing.TB, configure ...func(*pgxpool.Config)) *house {
	t.Helper()
	h := &house{t, pgtest.New(t, configure...)}
	h.exec("alter table idem.records set (autovacuum_enabled = off)") // which would give pages back when it comes to it
	return h
}

// newHouseWithExpired returns a house with n records that may be deleted.
func newHouseWithExpired(t testing.TB, n int) *house {
	t.Helper()
	h := newHouse(t)
	h.records(n, "expired", "completed", "2 hours")
	return h
}

func maxConns(n int32) func(*pgxpool.Config) { return func(c *pgxpool.Config) { c.MaxConns = n } }

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.pool.Exec(context.Background(), sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) count(sql string, args ...any) int64 {
	h.t.Helper()
	var n int64
	if err := h.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// records inserts n records that have expired for the given time, or will expire if it is negative.
func (h *house) records(n int, name, state, expired string) {
	h.t.Helper()
	h.exec(`insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
		select 'a scope', format('%s %s', $2::text, i), sha256(i::text::bytea), gen_random_uuid(), now() - '1 day'::interval,
		       now() - $4::interval, $3, 201, now() - '1 day'::interval, '{"A":["b"]}', repeat('x', 100)::bytea
		from generate_series(1, $1) i`, n, name, state, expired)
}

// remaining counts the rows of a table by the value of an expression.
func (h *house) remaining(expression, table string) map[string]int64 {
	h.t.Helper()
	rows, _ := h.pool.Query(context.Background(), "select "+expression+", count(*) from "+table+" group by 1")
	left := map[string]int64{}
	var name string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { left[name] = n; return nil }); err != nil {
		h.t.Fatal(err)
	}
	return left
}

// left counts the remaining records by name.
func (h *house) left() map[string]int64 {
	h.t.Helper()
	return h.remaining("regexp_replace(key, ' [0-9]+$', '')", "idem.records")
}

func (h *house) wantLeft(want map[string]int64) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.left()); diff != "" {
		h.t.Errorf("records that are left (-want +got):\n%s", diff)
	}
}

func (h *house) begin() pgx.Tx {
	h.t.Helper()
	tx, err := h.pool.Begin(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// pages returns the number of pages of the records.
func (h *house) pages() int64 {
	h.t.Helper()
	return h.count("select pg_relation_size('idem.records') / current_setting('block_size')::int")
}

// swift returns Options without pauses, and without waiting for other load on the test server.
func swift() Options { return Options{Share: 1, MaxLag: -1, MaxDead: -1} }

// open opens another pool on the database.
func (h *house) open(configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	h.t.Helper()
	return pgtest.Open(h.t, h.pool.Config().ConnString(), configure...)
}

// once calls Once, and fails the test on an error.
func (h *house) once(o Options) Report {
	h.t.Helper()
	return h.onceOn(h.pool, o)
}

func (h *house) onceOn(pool *pgxpool.Pool, o Options) Report {
	h.t.Helper()
	rep, err := Once(context.Background(), pool, o)
	if err != nil {
		h.t.Fatal(err)
	}
	return rep
}

func (h *house) wantCounts(rep Report, ended Reason, want Counts) {
	h.t.Helper()
	want.Pages = rep.Pages
	if diff := cmp.Diff(want, rep.Counts); diff != "" {
		h.t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := rep.Tables[0].Ended; got != ended {
		h.t.Errorf("it ended because: %s, want %s", got, ended)
	}
}
