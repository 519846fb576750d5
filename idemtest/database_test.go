package idemtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/lab/pgtest"
)

// logger is a test whose log and failures another test looks at.
type logger struct {
	testing.TB
	text string
}

func (l *logger) Helper()                   {}
func (l *logger) Logf(f string, a ...any)   { l.text += fmt.Sprintf("log: "+f+"\n", a...) }
func (l *logger) Errorf(f string, a ...any) { l.text += fmt.Sprintf("error: "+f+"\n", a...) }

// A backend that sends to a client that does not read keeps every DROP DATABASE of the server waiting.
func TestDrop_IsGivenUpWhileABackendIsStuck(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.Server(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func(limit time.Duration) { dropLimit = limit }(dropLimit)
	dropLimit = 2 * time.Second
	s := newServer(config)
	stuck, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close(context.Background())
	for _, name := range []string{"one", "two"} {
		if err := s.clone(t.Context(), name, "template0"); err != nil {
			t.Fatal(err)
		}
	}
	stuck.PgConn().Frontend().SendQuery(&pgproto3.Query{String: "SELECT repeat('x', 1000000) FROM generate_series(1, 100)"})
	if err := stuck.PgConn().Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	awaitClientWrite(t, s, stuck.PgConn().PID())
	begun := time.Now()
	for _, name := range []string{"one", "two"} {
		log := &logger{TB: t}
		s.drop(log, name)
		if !strings.HasPrefix(log.text, "log: idemtest: DROP DATABASE "+name+" was not answered within") {
			t.Errorf("got %q", log.text)
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func awaitClientWrite(t *testing.T, s *server, pid uint32) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var waits bool
		err := conn.QueryRow(t.Context(), "SELECT coalesce(wait_event = 'ClientWrite', false) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&waits)
		if err != nil || time.Since(begun) > time.Minute {
			t.Fatalf("no backend waits for its client: %v", err)
		}
		if waits {
			return
		}
	}
}

// Several processes of tests may begin at once on a server that has no template yet.
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
