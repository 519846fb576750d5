package house_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// The queries of docs/operations-reference.md for a rollout, in their order: the if goes first, and its question later.
func TestChangedMayGoWhenNothingUnderWayHasItOnRecord(t *testing.T) {
	t.Parallel()
	const question = "fraud check"
	pool := pgtest.New(t)
	_, section, _ := strings.Cut(documents(t)["docs/operations-reference.md"], "\n## Changing code under way\n")
	queries := blocks(section, "sql")
	found := func(query string, args ...any) (n int) {
		t.Helper()
		rows, err := pool.Query(t.Context(), query, args...)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			n++
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		return n
	}
	code := func(checks func(op *operation.Op) bool) *operation.Definition[int] {
		return operation.Define("checkout", func(op *operation.Op, _ int) (idem.Response, error) {
			if checks(op) {
				if err := operation.Exec(op, "check", func(pgx.Tx) error { return nil }); err != nil {
					return idem.Response{}, err
				}
			}
			_, err := operation.Await[int](op, "go", time.Hour)
			return idem.Response{Status: 201}, err
		})
	}
	before := code(func(*operation.Op) bool { return false })
	asks := code(func(op *operation.Op) bool { return op.Changed(question) })
	line := code(func(op *operation.Op) bool { op.Changed(question); return true })
	gone := code(func(*operation.Op) bool { return true })
	do := func(d *operation.Definition[int], key string) error {
		_, err := d.Do(t.Context(), pool, "tenant-1", key, idem.HashBytes(nil), 0, idem.WithWait(0))
		return err
	}
	ids := map[string]string{}
	begin := func(d *operation.Definition[int], key string) {
		t.Helper()
		var id string
		if err := do(d, key); !errors.Is(err, idem.ErrInProgress) {
			t.Fatalf("%s: %v", key, err)
		}
		if err := pool.QueryRow(t.Context(), `SELECT id::text FROM idem.operations WHERE key = $1`, key).Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids[key] = id
	}
	end := func(d *operation.Definition[int], key string) error {
		t.Helper()
		if err := operation.Signal(t.Context(), pool, ids[key], "go", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), `UPDATE idem.operations SET wake_at = clock_timestamp() WHERE key = $1`, key); err != nil {
			t.Fatal(err)
		}
		return do(d, key)
	}

	begin(before, "old")
	begin(asks, "new")
	if n := found(queries[0]); n != 2 {
		t.Errorf("%d are under way", n)
	}
	if err := end(asks, "old"); err != nil {
		t.Errorf("an operation of the old code, with the if: %v", err)
	}
	if err := end(line, "new"); err != nil {
		t.Errorf("one of the new code, without the if: %v", err)
	}
	begin(line, "asked")
	if n := found(queries[1], question); n != 1 {
		t.Errorf("%d are under way with the question on record", n)
	}
	if err := end(gone, "asked"); !errors.Is(err, operation.ErrParked) {
		t.Errorf("that one, without the line: %v", err)
	}
	if err := operation.Retry(t.Context(), pool, ids["asked"]); err != nil {
		t.Fatal(err)
	}
	if err := do(line, "asked"); err != nil {
		t.Errorf("with the line again: %v", err)
	}
	if n := found(queries[1], question); n != 0 {
		t.Errorf("%d are under way with the question on record, and all have ended", n)
	}
	begin(gone, "last")
	if err := end(gone, "last"); err != nil {
		t.Errorf("one that is begun without the line: %v", err)
	}
}
