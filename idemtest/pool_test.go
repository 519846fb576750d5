package idemtest_test

import (
	"context"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestPool_HasTheSchemaAndNothingElse(t *testing.T) {
	t.Parallel()
	pool := idemtest.Pool(t)
	for _, table := range []string{"idem.records", "idem.operations", "idem.inbox", "idem.outbox"} {
		if n, err := count(table)(t.Context(), pool); n != 0 || err != nil {
			t.Errorf("%s: %d rows, %v", table, n, err)
		}
	}
	if n, err := count("pg_class WHERE relnamespace = 'public'::regnamespace")(t.Context(), pool); n != 0 || err != nil {
		t.Errorf("%d relations in public, %v", n, err)
	}
}

func TestPool_ConnStringLeadsToItsDatabase(t *testing.T) {
	t.Parallel()
	pool := idemtest.Pool(t)
	exec(t, pool, "CREATE TABLE here ()")
	conn, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "TABLE here"); err != nil {
		t.Error(err)
	}
}

func TestSuite_RefusesAPoolThatBypassesTheProxy(t *testing.T) {
	t.Parallel()
	suite := funcSuite(goodFuncs[0].buy)
	suite.New = func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }
	errors := record(t, func(t testing.TB) { idemtest.Func(t, suite) })
	if len(errors) != 1 || !strings.Contains(errors[0], "have New make it with idemtest.Pool") {
		t.Errorf("got %q", errors)
	}
}

// The server that Pool starts without DATABASE_URL ends with the process, and leaves no files.
func TestServer_EndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "idemtest-temp-") // for another user, if this one is root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(os.Args[0], "-test.run=^TestPool_HasTheSchemaAndNothingElse$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "DATABASE_URL=") || strings.HasPrefix(v, "IDEM_TEST_DATABASE_URL=") || strings.HasPrefix(v, "CI=")
	}), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "no PostgreSQL:") {
		t.Skip("neither PostgreSQL's programs nor docker is installed")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		left, err := os.ReadDir(dir)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("left behind: %v, %v", left, err)
		}
	}
}
