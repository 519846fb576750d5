package promises_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/jackc/pgx/v5"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// The record tells the outcome of a COMMIT as long as it exists. It may have expired and been taken
// over while no call could read it. Then a call must not claim that nothing was committed, and must
// not say that it may be retried.
func TestCommitWhoseRecordWasTakenOverMeanwhileIsUnknown(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"the successor is retained": time.Hour, "the successor has expired as well": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, p.proxy.DSN())
			trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
			done := make(chan error, 1)
			go func() {
				_, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithTTL(50*time.Millisecond))
				done <- err
			}()
			event := await(t, "the trap", trap.Fired())
			for {
				res, err := idemDo(t.Context(), p.pool, scope, "k", hashA, p.charge("k"), idem.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				if !res.Replayed {
					break
				}
			}
			for ttl < time.Hour && p.count("select count(*) from idem.records where expires_at <= clock_timestamp()") == 0 {
			}
			event.Conn.Cut(pgproxy.Reset)
			if err := await(t, "the call", done); !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("err = %v", err)
			}
			if n := p.entries("k"); n != 2 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// expireAll makes every record expired.
func (l *ledger) expireAll() {
	l.t.Helper()
	if _, err := l.pool.Exec(context.Background(), "update idem.records set expires_at = clock_timestamp()"); err != nil {
		l.t.Fatal(err)
	}
}

// wantNoLockTimeout fails the test if the transaction has a lock_timeout. No test here sets one.
func wantNoLockTimeout(t *testing.T, of string, tx pgx.Tx) {
	t.Helper()
	var s string
	if err := tx.QueryRow(context.Background(), "show lock_timeout").Scan(&s); err != nil || s != "0" {
		t.Errorf("lock_timeout of %s is %s, %v", of, s, err)
	}
}

// A takeover with WithWait(0) sets a lock_timeout. That must not make statements of fn or of the
// caller fail.
func TestTakeOverLeavesLockTimeoutAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fn := func(t *testing.T) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) {
			wantNoLockTimeout(t, "fn", tx)
			return ok, nil
		}
	}
	t.Run("Do", func(t *testing.T) {
		t.Parallel()
		l := newLedger(t)
		l.charged(ctx, "k")
		l.expireAll()
		if res, err := idemDo(ctx, l.pool, scope, "k", hashA, fn(t), idem.WithWait(0)); err != nil || res.Replayed {
			t.Errorf("%+v, %v", res, err)
		}
	})
	t.Run("DoTx", func(t *testing.T) {
		t.Parallel()
		l := newLedger(t)
		l.charged(ctx, "k")
		l.expireAll()
		tx := l.begin(ctx)
		if res, err := idem.DoTx(ctx, tx, scope, "k", hashA, fn(t)); err != nil || res.Replayed {
			t.Errorf("%+v, %v", res, err)
		}
		wantNoLockTimeout(t, "the caller's transaction", tx)
	})
	t.Run("DoTx past the savepoints that finds the key held", func(t *testing.T) {
		t.Parallel()
		l := newLedger(t)
		l.charged(ctx, "k")
		for i := range saved {
			l.charged(ctx, fmt.Sprint("past", i))
		}
		l.expireAll()
		if _, err := idem.DoTx(ctx, l.begin(ctx), scope, "k", hashA, answer(ok)); err != nil {
			t.Fatal(err)
		}
		tx := l.begin(ctx)
		past(t, ctx, tx)
		if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, answer(ok)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("err = %v", err)
		}
		wantNoLockTimeout(t, "the caller's transaction", tx)
	})
}

// Callers take over from one another as fast as they can, with and without the advisory lock that
// serializes them before the primary key does. Only the clock of the database counts.
func TestExecutionsOfAKeyBeginWhenTheRecordBeforeHasExpired(t *testing.T) {
	t.Parallel()
	for _, level := range isoLevels {
		for _, lock := range []string{"sound lock", "no lock"} {
			t.Run(fmt.Sprint(level, "/", lock), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t, maxConns(6))
				expiries := takeOverInTurns(t, l, level, append([]idem.Option{idem.WithTTL(10 * time.Millisecond)}, locks[lock]...))
				for executionID, expiresAt := range expiries {
					if _, err := l.pool.Exec(t.Context(), "update runs set expires = $2 where execution_id = $1", executionID, expiresAt); err != nil {
						t.Fatal(err)
					}
				}
				if n := l.count("select count(*) from runs where expires is null"); n != 0 {
					t.Errorf("%d executions that no caller was told of", n)
				}
				if n := l.count(`select count(*) from runs a join runs b using (key)
					where a.execution_id <> b.execution_id and b.began >= a.began and b.began < a.expires`); n != 0 {
					t.Errorf("%d of %d executions began in the time of another", n, len(expiries))
				}
			})
		}
	}
}

// takeOverInTurns makes calls of all kinds for two keys concurrently. It returns the expiry of each
// execution.
func takeOverInTurns(t *testing.T, l *ledger, level pgx.TxIsoLevel, opts []idem.Option) map[string]time.Time {
	t.Helper()
	ctx := t.Context()
	const rounds = 100
	_, err := l.pool.Exec(ctx, "create table runs (key text, execution_id text, began timestamptz, expires timestamptz)")
	if err != nil {
		t.Fatal(err)
	}
	options := pgx.TxOptions{IsoLevel: level}
	do := func(key string, more ...idem.Option) (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, key, hashA, began(ctx, key), slices.Concat(opts, more, []idem.Option{idem.WithTxOptions(options)})...)
	}
	kinds := []func(key string) (idem.Result, error){
		func(key string) (idem.Result, error) { return do(key) },
		func(key string) (idem.Result, error) { return do(key, idem.WithWait(0)) },
		func(key string) (res idem.Result, err error) {
			err = pgx.BeginTxFunc(ctx, l.pool, options, func(tx pgx.Tx) error {
				var err error
				res, err = idem.DoTx(ctx, tx, scope, key, hashA, began(ctx, key), opts...)
				return err
			})
			return res, err
		},
	}
	var callers sync.WaitGroup
	var mu sync.Mutex
	expiries := map[string]time.Time{}
	for n := range 2 * len(kinds) {
		callers.Go(func() {
			for round := range rounds {
				if n == 0 && round%4 == 0 {
					_, _ = l.pool.Exec(ctx, "delete from idem.records where expires_at < clock_timestamp()")
				}
				res, err := kinds[n%len(kinds)](fmt.Sprint("k", (n+round)%2))
				switch {
				case err != nil && !idem.Retryable(err):
					t.Error(err)
				case err == nil && !res.Replayed:
					mu.Lock()
					expiries[res.ExecutionID] = res.ExpiresAt
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	return expiries
}

// began returns a fn that records when it began.
func began(ctx context.Context, key string) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		executionID, _ := idem.ExecutionID(tx)
		_, err := tx.Exec(ctx, "insert into runs values ($1, $2, clock_timestamp())", key, executionID)
		return ok, err
	}
}
