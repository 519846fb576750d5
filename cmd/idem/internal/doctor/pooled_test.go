package doctor_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/lab/pgtest"
)

// Commands prepare no statements and rely on no session state. Each command runs several times, so
// that leftovers of one run would disturb the next.
func TestCommands_WorkBehindPgBouncer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.PgBouncer(t, pgtest.EmptyDSN(t))
	const id = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
	call := func(code int, args ...string) {
		t.Helper()
		var output bytes.Buffer
		got := command.Run(t.Context(), command.World{
			Args: args, Now: time.Now, Stdin: strings.NewReader(""), Stdout: &output, Stderr: &output,
			Getenv: func(name string) string { return map[string]string{"DATABASE_URL": dsn}[name] },
		})
		if got != code || strings.Contains(output.String(), "prepared statement") {
			t.Errorf("%q: exit code %d, want %d\n%s", args, got, code, output.String())
		}
	}
	call(0, "migrate", "up", "--yes")
	w := testDBAt(t, dsn)
	for range 3 {
		w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			VALUES ('s', 'k', '', '` + id + `', now(), now() + '1 h', 'completed'), ('s', 'old', '', '` + id + `', now(), now() - interval '1 d', 'completed')`)
		call(0, "migrate", "status")
		call(3, "doctor")
		call(0, "stats", "--exact")
		call(0, "stuck")
		call(0, "list", "--scope", "s")
		call(0, "show", "s", "k", "--reveal")
		call(0, "explain", "s", "k")
		call(0, "purge", "--yes", "--share", "1")
		call(4, "show", "s", "old")
		call(0, "evict", "s", "k", "--execution", id, "--yes")
	}
}
