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

// limit is how long a test waits for a signal that has to come.
const limit = waiting.Limit

// bench is a database with a table that transactions write to.
type bench struct {
	t      *testing.T
	direct *pgxpool.Pool // to look at it
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

// withEngine returns another engine, on a pool of its own.
func (b *bench) withEngine(options pgx.TxOptions, limits Limits) *Engine {
	return &Engine{Pool: pgtest.Open(b.t, b.proxy.DSN()), Options: options, Limits: limits}
}

// write is a fn that writes name and answers with what is given.
func write(name string, undo bool, err error) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (bool, error) {
		_, writeErr := tx.Exec(context.Background(), "insert into made (name) values ($1)", name)
		return undo, errors.Join(err, writeErr)
	}
}

// open begins a transaction that is closed when the test is over, and writes name in it.
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

// commit commits on another goroutine. Where the test ends first, because it has failed, the socket is closed: the Commit ends, and
// only then may the transaction be closed.
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

// wantMade fails the test unless name was committed as often.
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

// await returns once the channel is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// change gives an engine a pool of another configuration.
func (b *bench) change(e *Engine, change func(*pgxpool.Config)) {
	b.t.Helper()
	config := e.Pool.Config()
	change(config)
	e.Pool = pgtest.OpenConfig(b.t, config)
}
