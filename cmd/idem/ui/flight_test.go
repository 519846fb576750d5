package ui_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestFlight_NamesTheRootBlocker(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.exec("CREATE TABLE accounts AS SELECT 1 AS id")
	root, err := pgx.Connect(t.Context(), d.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close(context.Background()) })
	for _, sql := range []string{"SET application_name = 'nightly report'", "BEGIN", "UPDATE accounts SET id = id"} {
		if _, err := root.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := idem.Do(context.Background(), d.pool, "shop", "blocked", idem.HashBytes(), func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(context.Background(), "UPDATE accounts SET id = id")
			return idem.Response{}, err
		})
		ended <- err
	}()
	pid := root.PgConn().PID()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && d.count(fmt.Sprintf("SELECT count(*) FROM pg_locks l, unnest(pg_blocking_pids(l.pid)) AS b WHERE NOT l.granted AND b = %d", pid)) == 0; {
		time.Sleep(10 * time.Millisecond)
	}
	d.get("flight").want(t, 200, fmt.Sprintf("blocked by <bdi>process %d (nightly report)", pid), fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	if _, err := root.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
