package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/waiting"
)

// limit is the maximum time that a test waits for a signal.
const limit = waiting.Limit

// await waits until c is closed or has a value, and returns that value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// escape runs f in a separate goroutine.
var escape = waiting.Escape

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// oneRun wraps a fn that must run only once. A second run fails the test and the call; the call
// could otherwise retry forever.
func oneRun[T any](t *testing.T, fn func(pgx.Tx) (T, error)) func(pgx.Tx) (T, error) {
	var runs atomic.Int32
	return func(tx pgx.Tx) (value T, err error) {
		if runs.Add(1) > 1 {
			t.Error("fn runs again")
			return value, errors.New("fn runs again")
		}
		return fn(tx)
	}
}

// held is a call whose fn blocks until release is called.
type held struct {
	begun   chan struct{}
	release func()
	done    chan error
	result  idem.Result
}

// hold makes a call for key whose fn blocks after its write. It returns when fn has blocked. end is
// the error that fn returns.
func (l *ledger) hold(t *testing.T, key string, hash idem.Hash, end error, opts ...idem.Option) *held {
	t.Helper()
	gate := make(chan struct{})
	h := &held{begun: make(chan struct{}), release: sync.OnceFunc(func() { close(gate) }), done: make(chan error, 1)}
	t.Cleanup(h.release)
	go func() {
		var err error
		h.result, err = idemDo(context.Background(), l.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
			resp, err := l.charge(key)(tx)
			close(h.begun)
			<-gate
			return resp, errors.Join(err, end)
		}, opts...)
		h.done <- err
	}()
	await(t, "fn to begin", h.begun)
	return h
}

func (h *held) wait(t *testing.T) error { t.Helper(); return await(t, "the held call to end", h.done) }

func maxConns(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

// waitIdle waits until all connections of the pool are idle. A replay releases its connection in
// the background.
func waitIdle(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for pool.Stat().AcquiredConns() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections were not given back", pool.Stat().AcquiredConns())
		}
		time.Sleep(time.Millisecond)
	}
}

// lockRecords locks the table of records until unlock is called.
func lockRecords(t *testing.T, pool *pgxpool.Pool) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { tx.Rollback(context.Background()) })
	t.Cleanup(unlock)
	if _, err := tx.Exec(context.Background(), "lock table idem.records in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	return unlock
}

// awaitBlocked waits until n backends of the pool's database are blocked by another transaction.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	awaitTrue(t, pool, fmt.Sprintf(`select count(*) >= %d from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`, n))
}

// awaitTrue polls the server until sql returns true.
func awaitTrue(t testing.TB, pool *pgxpool.Pool, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		var ok bool
		if err := pool.QueryRow(ctx, sql).Scan(&ok); err != nil {
			t.Fatalf("waiting for %s: %v", sql, err)
		}
		if ok {
			return
		}
	}
}
