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

// limit is how long a test waits for a signal that has to come.
const limit = waiting.Limit

// await returns once the channel is closed or has a value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// escape runs f in a goroutine of its own.
var escape = waiting.Escape

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// oneRun is fn for a call that has to run it once. In another run it fails the test, and the call, which may otherwise go on for ever.
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

// held is a call whose fn has begun and goes on until release is called.
type held struct {
	begun   chan struct{}
	release func()
	done    chan error
	result  idem.Result
}

// hold makes a call for key whose fn stops after its write, and returns once it has stopped. end is what fn returns.
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

// waitIdle returns once the pool has every connection back: a replay gives its own back in the background.
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

// lockRecords keeps everybody from the table of records until it is told to let go.
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

// awaitBlocked returns once n backends of the pool's database wait for another transaction.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	awaitTrue(t, pool, fmt.Sprintf(`select count(*) >= %d from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`, n))
}

// awaitTrue polls the server for a state that it announces in no other way.
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
