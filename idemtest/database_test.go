package idemtest

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Several test processes may start at once on a server that has no template yet.
func TestTemplate_IsBuiltBesideAnotherProcess(t *testing.T) {
	t.Parallel()
	if address := os.Getenv("IDEM_TEST_DATABASE_URL"); address != "" {
		os.Setenv("DATABASE_URL", address)
	}
	s := requireServer(t)
	draft, name := "idemtest_"+rand.Text()[:12], "idemtest_"+rand.Text()[:12]
	if err := s.clone(t.Context(), draft, "template0"); err != nil {
		t.Fatal(err)
	}
	faster, err := pgx.ConnectConfig(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer faster.Close(context.Background())
	execute := func(sql string) {
		if _, err := faster.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	execute("BEGIN")
	execute("ALTER DATABASE " + quoted(draft) + " RENAME TO " + quoted(name))
	defer s.drop(t, name)
	built := make(chan error, 1)
	go func() { built <- s.build(context.Background(), name) }()
	for begun, waits := time.Now(), false; !waits; time.Sleep(10 * time.Millisecond) {
		err := faster.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))`).Scan(&waits)
		if err != nil || time.Since(begun) > time.Minute {
			t.Fatalf("the other process does not wait: %v", err)
		}
	}
	execute("COMMIT")
	if err := <-built; err != nil {
		t.Errorf("the slower process: %v", err)
	}
}
