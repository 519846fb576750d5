package command_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// A call waits for a session, which waits for another session. Only ending the last session helps.
func TestStuck_NamesTheRootBlocker(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.exec("CREATE TABLE accounts AS SELECT 1 AS id UNION ALL SELECT 2")
	root, middle := d.connect(), d.connect()
	session := func(conn *pgx.Conn, sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}
	session(root, "SET application_name = 'nightly report'")
	session(root, "BEGIN")
	session(root, "UPDATE accounts SET id = id WHERE id = 1")
	session(middle, "BEGIN")
	session(middle, "UPDATE accounts SET id = id WHERE id = 2")
	ended := make(chan error, 2)
	go func() {
		_, err := middle.Exec(context.Background(), "UPDATE accounts SET id = id WHERE id = 1")
		_ = middle.Close(context.Background())
		ended <- err
	}()
	go func() {
		_, err := idem.Do(context.Background(), d.pool, scope, "blocked", idem.HashBytes(), func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(context.Background(), "UPDATE accounts SET id = id WHERE id = 2")
			return idem.Response{}, err
		})
		ended <- err
	}()
	waiting := 0
	for deadline := time.Now().Add(10 * time.Second); waiting < 2 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple') AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	pid, between := root.PgConn().PID(), middle.PgConn().PID()
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)
	for _, args := range [][]string{{"stuck", "--older", "1ms"}, {"explain", scope, "blocked"}} {
		output := d.idem(args...)
		output.stdout = strings.Join(strings.Fields(output.stdout), " ")
		output.want(t, map[string]int{"stuck": 3}[args[0]], fmt.Sprintf("is blocked by process %d (nightly report)", pid), "idle in transaction", "last statement at", end, "helps its own callers only")
		if strings.Contains(output.stdout, fmt.Sprintf("by process %d", between)) || strings.Contains(output.stdout, "pg_terminate_backend(PID)") {
			t.Errorf("%s advises to end a blocked session:\n%s", args[0], output.stdout)
		}
	}
	d.idem("explain", scope, "blocked", "--json").want(t, 0, `"blocked_by": {`, fmt.Sprintf(`"pid": %d`, pid), `"application_name": "nightly report"`, `"query_start": "`)
	session(root, "ROLLBACK")
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// connect opens a session outside the pool.
func (d *harness) connect() *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
