package house_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// The statements of docs/coming-from.md, in their order, on a service that has a table of its own.
func TestServiceMovesFromATableOfItsOwn(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	statements := blocks(documents(t)["docs/coming-from.md"], "sql")
	if len(statements) != 2 {
		t.Fatalf("%d blocks of SQL", len(statements))
	}
	exec := func(sql string, args ...any) int64 {
		t.Helper()
		tag, err := pool.Exec(t.Context(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	exec(statements[0])
	body := []byte(`{"sku":"teapot"}`)
	for key, status := range map[string]any{"answered": 201, "refused": 402, "in progress": nil} {
		exec(`INSERT INTO idempotency_keys (tenant, key, request, status, response) VALUES ('tenant-1', $1, sha256($2), $3, 'of the old code')`, key, body, status)
	}
	scope := idem.Scope("tenant-1", "POST /orders")
	if want := strings.Split(statements[1], "'"); want[1]+want[3] != scope {
		t.Fatalf("idem.Scope returns %q", scope)
	}
	if n := exec(statements[1]); n != 2 {
		t.Fatalf("%d records were moved", n)
	}
	do := func(key string, body []byte) (idem.Result, error) {
		return idem.Do(context.WithoutCancel(t.Context()), pool, scope, key, idem.Hash(sha256.Sum256(body)), func(pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201, Body: []byte("of the new code")}, nil
		})
	}
	for key, status := range map[string]int{"answered": 201, "refused": 402} {
		if result, err := do(key, body); err != nil || !result.Replayed || result.Status != status || string(result.Body) != "of the old code" {
			t.Errorf("%s: %+v, %v", key, result, err)
		}
		if _, err := do(key, []byte(`{"sku":"kettle"}`)); !errors.Is(err, idem.ErrMismatch) {
			t.Errorf("%s with another request: %v", key, err)
		}
	}
	if result, err := do("new", body); err != nil || result.Replayed || string(result.Body) != "of the new code" {
		t.Errorf("%+v, %v", result, err)
	}
}

// What the page does to the files of the module makes pairs that bring a database to the schema and back.
func TestMigrationsBecomePairsOfFiles(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	script := blocks(documents(t)["docs/coming-from.md"], "sh")[0]
	script = strings.Replace(script, `$(go list -m -f '{{.Dir}}' github.com/idem-go/idem)`, root, 1)
	dir := t.TempDir()
	cmd := exec.Command("sh", "-eu", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pool := pgtest.Open(t, pgtest.EmptyDSN(t))
	run := func(suffix string, backwards bool) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		if slices.Sort(files); backwards {
			slices.Reverse(files)
		}
		for _, file := range files {
			sql, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), string(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", filepath.Base(file), err)
			}
		}
	}
	run(".up.sql", false)
	result, err := idem.Do(t.Context(), pool, "s", "k", idem.HashBytes([]byte("r")), func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 201}, nil })
	if err != nil || result.Status != 201 {
		t.Fatal(result, err)
	}
	run(".down.sql", true)
	var left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'idem'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("the schema is still there: %v", err)
	}
}
