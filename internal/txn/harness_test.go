package txn

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// limit is how long a test waits for an event.
const limit = waiting.Limit

// bench is a database with a table that transactions write to.
type bench struct {
	t      *testing.T
	direct *pgxpool.Pool // not through the proxy
	engine *Engine
	proxy  *pgproxy.Proxy // between the engine and the database
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn := pgtest.EmptyDSN(t)
	b := &bench{t: t, direct: pgtest.Open(t, dsn), proxy: pgtest.Proxy(t, dsn)}
	_, err := b.direct.Exec(t.Context(), `create table made (name text, pair text, unique (pair) deferrable initially deferred)`)
	if err != nil {
		t.Fatal(err)
	}
	b.engine = b.withEngine(pgx.TxOptions{}, DefaultLimits)
	return b
}

// withEngine returns another engine with its own pool.
func (b *bench) withEngine(options pgx.TxOptions, limits Limits) *Engine {
	return &Engine{Pool: pgtest.Open(b.t, b.proxy.DSN()), Options: options, Limits: limits}
}

// write returns a fn that inserts name and returns undo and err.
func write(name string, undo bool, err error) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (bool, error) {
		_, writeErr := tx.Exec(context.Background(), "insert into made (name) values ($1)", name)
		return undo, errors.Join(err, writeErr)
	}
}

// open begins a transaction, inserts name, and closes the transaction at the end of the test.
func (b *bench) open(e *Engine, name string) *Tx {
	b.t.Helper()
	tx, err := e.Open(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(tx.Close)
	if _, err := tx.Run("", write(name, false, nil)); err != nil {
		b.t.Fatal(err)
	}
	return tx
}

// commit commits on another goroutine. If the test fails before the answer, commit closes the
// socket, so that Commit returns before the transaction is closed.
func (b *bench) commit(ctx context.Context, tx *Tx, requests ...Request) <-chan error {
	answer, done := make(chan error, 1), make(chan struct{})
	b.t.Cleanup(func() {
		_ = tx.conn.PgConn().Conn().Close()
		await(b.t, "the end of the commit", done)
	})
	go func() {
		defer close(done)
		answer <- tx.Commit(ctx, requests...)
	}()
	return answer
}

// wantMade fails the test unless name was committed want times.
func (b *bench) wantMade(name string, want int) {
	b.t.Helper()
	var n int
	if err := b.direct.QueryRow(context.Background(), "select count(*) from made where name = $1", name).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	if n != want {
		b.t.Errorf("%s is committed %d times, want %d", name, n, want)
	}
}

// await returns once c is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// change replaces the pool of e by one with another configuration.
func (b *bench) change(e *Engine, change func(*pgxpool.Config)) {
	b.t.Helper()
	config := e.Pool.Config()
	change(config)
	e.Pool = pgtest.OpenConfig(b.t, config)
}
