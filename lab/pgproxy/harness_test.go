package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

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

// within returns a context that ends with the test or after a time.
var within = waiting.Within

// start returns a proxy in front of a new database.
func start(t testing.TB) *pgproxy.Proxy {
	t.Helper()
	return pgtest.Proxy(t, pgtest.DSN(t))
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

// witness reads the database of a proxy without that proxy. It has the table t and the sequence
// t_seq. A rollback does not undo a sequence.
type witness struct {
	t     testing.TB
	proxy *pgproxy.Proxy
	conn  *pgx.Conn
}

func newWitness(t testing.TB) *witness {
	t.Helper()
	dsn := pgtest.DSN(t)
	w := &witness{t, pgtest.Proxy(t, dsn), connect(t, dsn, pgx.QueryExecModeExec)}
	w.exec("create table t (id int primary key, late int unique deferrable initially deferred)")
	w.exec("create sequence t_seq")
	return w
}

func (w *witness) exec(sql string) {
	w.t.Helper()
	mustExec(w.t, w.conn, sql)
}

// rows returns how many rows are committed.
func (w *witness) rows() int { return w.number("select count(*) from t") }

// drawn returns how many numbers were taken from the sequence, committed or not.
func (w *witness) drawn() int {
	return w.number("select case when is_called then last_value else 0 end from t_seq")
}

func (w *witness) number(sql string) (n int) {
	w.t.Helper()
	if err := w.conn.QueryRow(within(w.t), sql).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
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
