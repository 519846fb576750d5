package pgproxy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/waiting"
)

// patience is how long a test waits for an expected event. It only decides how soon a hanging test
// fails.
const patience = waiting.Limit

// TestMain fails if a closed proxy has left a goroutine.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func leaked() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "pgproxy.(*") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

func database(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("IDEM_TEST_DATABASE_URL")
	if dsn == "" {
		t.Skip("no database: run the tests through `make test`")
	}
	return dsn
}

// within returns a context that ends with the test or after a time.
var within = waiting.Within

// start returns a proxy in front of the test database.
func start(t testing.TB) *pgproxy.Proxy {
	t.Helper()
	p, err := pgproxy.New(database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func inEveryMode(t *testing.T, test func(*testing.T, pgx.QueryExecMode)) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

func connect(t testing.TB, dsn string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(within(t)) })
	return conn
}

// only returns the one open connection of a proxy.
func only(t testing.TB, p *pgproxy.Proxy) *pgproxy.Conn {
	t.Helper()
	conns := p.Conns()
	if len(conns) != 1 {
		t.Fatalf("the proxy has %d connections, want 1", len(conns))
	}
	return conns[0]
}

// witness reads the database without a proxy.
type witness struct {
	t    testing.TB
	conn *pgx.Conn
	// name is that of a table (id int unique), and with _seq that of a sequence. A rollback does
	// not undo a sequence.
	name string
}

func newWitness(t testing.TB) *witness {
	t.Helper()
	w := &witness{t, connect(t, database(t), pgx.QueryExecModeExec), "pgproxy_" + strings.ToLower(rand.Text())}
	w.exec("create table %[1]s (id int primary key, late int unique deferrable initially deferred); create sequence %[1]s_seq")
	t.Cleanup(func() { w.exec("drop table %[1]s; drop sequence %[1]s_seq") })
	return w
}

func (w *witness) sql(format string) string { return fmt.Sprintf(format, w.name) }

func (w *witness) exec(format string) {
	w.t.Helper()
	if _, err := w.conn.Exec(within(w.t), w.sql(format)); err != nil {
		w.t.Fatal(err)
	}
}

// rows returns how many rows are committed.
func (w *witness) rows() int { return w.number("select count(*) from %s") }

// drawn returns how many numbers were taken from the sequence, committed or not.
func (w *witness) drawn() int {
	return w.number("select case when is_called then last_value else 0 end from %s_seq")
}

func (w *witness) number(format string) (n int) {
	w.t.Helper()
	if err := w.conn.QueryRow(within(w.t), w.sql(format)).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func receive[T any](t testing.TB, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return value
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func mustExec(t testing.TB, conn *pgx.Conn, sql string, args ...any) pgconn.CommandTag {
	t.Helper()
	tag, err := conn.Exec(within(t), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// isLost reports whether err means a lost connection. Sometimes pgx only says that the connection
// is closed.
func isLost(err error) bool {
	var failure *pgconn.PgError
	return err != nil && !errors.As(err, &failure) && !errors.Is(err, context.DeadlineExceeded)
}
