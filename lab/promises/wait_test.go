package promises_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

func TestWait_DuplicatesHoldNoConnection(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(4))
	for where, others := range map[string]*ledger{"here": l, "another process": ledgerOn(t, l.process(maxConns(1)))} {
		first := l.hold(t, where, hashA, nil)
		acquired := others.pool.Stat().AcquireCount()
		const duplicates = 199
		w := newWatch()
		results := make([]idem.Result, duplicates)
		waiters := storm(duplicates, func(i int) {
			var err error
			results[i], err = idemDo(ctx, others.pool, scope, where, hashA, neverCalled(t), idem.WithWait(limit), idem.WithObserver(w))
			wantIs(t, err, nil)
		})
		w.await(t, "waiting", duplicates)
		if n := others.pool.Stat().AcquireCount(); others == l && n != acquired {
			t.Errorf("the duplicates took %d connections", n-acquired)
		}
		for i := range 10 { // others can acquire the only connection of the pool repeatedly
			others.charged(ctx, fmt.Sprint("bystander ", where, i))
		}
		first.release()
		noError(t, first.wait(t))
		waiters()
		want := first.result
		want.Replayed = true
		for i := range results {
			wantSame(t, want, results[i])
		}
		l.wantOnce(where)
	}
}

func TestWait_OneWaiterTakesOverIfTheFirstRunFails(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for where, pool := range map[string]*pgxpool.Pool{"here": l.pool, "another process": l.process()} {
		for _, how := range []string{"fails", "panics"} {
			key := where + " " + how
			gate, begun, ended := make(chan struct{}), make(chan struct{}), make(chan any, 1)
			go func() {
				recovered, _ := escape(t, func() {
					idemDo(context.Background(), l.pool, scope, key, hashA, func(pgx.Tx) (idem.Response, error) {
						close(begun)
						<-gate
						if how == "panics" {
							panic(errBusiness)
						}
						return ok, errBusiness
					})
				})
				ended <- recovered
			}()
			await(t, "fn to begin", begun)
			w := newWatch()
			before := l.runs.Load()
			calls := storm(10, func(int) {
				wantIs(t, errOf(idemDo(context.Background(), pool, scope, key, hashA, l.charge(key), idem.WithWait(limit), idem.WithObserver(w))), nil)
			})
			w.await(t, "waiting", 10)
			close(gate)
			await(t, "the first call", ended)
			calls()
			if n := l.runs.Load() - before; n != 1 || w.count("executed") != 1 || w.count("replayed") != 9 {
				t.Errorf("%s: fn ran %d more times, want one; outcomes: %v", key, n, w.all())
			}
			l.wantOnce(key)
		}
	}
}

// A call waits at least as long as WithWait. RetryAfter in its error is the same time, or one
// second if that is longer.
func TestWait_EndsWithInProgressAfterItsTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	held := l.hold(t, "k", hashA, nil)
	defer held.release()
	for name, pool := range map[string]*pgxpool.Pool{"same process": l.pool, "another process": l.process()} {
		for wait, retryAfter := range map[time.Duration]time.Duration{0: time.Second, 150 * time.Millisecond: time.Second, 1100 * time.Millisecond: 1100 * time.Millisecond} {
			begun := time.Now()
			_, err := idemDo(context.Background(), pool, scope, "k", hashA, neverCalled(t), idem.WithWait(wait))
			var inProgress *idem.InProgressError
			if !errors.As(err, &inProgress) || !errors.Is(err, idem.ErrInProgress) || !idem.Retryable(err) || inProgress.RetryAfter != retryAfter || time.Since(begun) < wait {
				t.Errorf("%s, WithWait(%v): %v after %v", name, wait, err, time.Since(begun))
			}
		}
	}
}

// The clock is a fake one, and the leader waits for a connection that never opens. A waiter whose
// context ends leaves earlier.
func TestWait_IsFiveSecondsByDefaultAndRetryAfterThirtyAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, ended := make(chan struct{}), make(chan struct{})
		config := must(pgxpool.ParseConfig("host=127.0.0.1 sslmode=disable"))
		config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			<-gate
			return nil, net.ErrClosed
		}
		pool := must(pgxpool.NewWithConfig(ctx, config))
		defer pool.Close()
		go func() {
			defer close(ended)
			idem.Do(ctx, pool, scope, "k", hashA, neverCalled(t), withLimits(time.Hour, 0, 0), idem.WithRetries(0))
		}()
		synctest.Wait()
		for wait, test := range map[time.Duration]struct {
			retryAfter time.Duration
			opts       []idem.Option
		}{
			5 * time.Second: {5 * time.Second, nil},
			time.Minute:     {30 * time.Second, []idem.Option{idem.WithWait(time.Minute)}},
		} {
			begun := time.Now()
			_, err := idem.Do(ctx, pool, scope, "k", hashA, neverCalled(t), test.opts...)
			var inProgress *idem.InProgressError
			if !errors.As(err, &inProgress) || inProgress.RetryAfter != test.retryAfter || time.Since(begun) != wait {
				t.Errorf("%v after %v, want RetryAfter %v after %v", err, time.Since(begun), test.retryAfter, wait)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := idem.Do(short, pool, scope, "k", hashA, neverCalled(t)); !errors.Is(err, context.DeadlineExceeded) || idem.Retryable(err) {
			t.Errorf("the context of a waiter has ended: %v", err)
		}
		close(gate)
		<-ended
	})
}

// A duplicate with another hash learns as little from memory as from the database. If the first run
// failed, it executes.
func TestWait_WithAnotherHash(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for key, test := range map[string]struct{ first, want error }{
		"is a mismatch once the first run is committed": {nil, idem.ErrMismatch},
		"executes if the first run failed":              {errBusiness, nil},
	} {
		first := l.hold(t, key, hashA, test.first)
		w := newWatch()
		acquired := l.pool.Stat().AcquireCount()
		done := calling(context.Background(), l.pool, key, hashB, l.charge(key), idem.WithWait(limit), idem.WithObserver(w))
		w.await(t, "waiting", 1)
		first.release()
		first.wait(t)
		err := await(t, "the waiter", done)
		var mismatch *idem.MismatchError
		if !errors.Is(err, test.want) {
			t.Errorf("err = %v, want %v", err, test.want)
		} else if errors.As(err, &mismatch) && (strings.Contains(err.Error()+mismatch.Key, key) || l.pool.Stat().AcquireCount() != acquired) {
			t.Errorf("%v has the key, or the waiter asked the database", err)
		}
		l.wantOnce(key)
	}
}

// A mismatch of one duplicate does not affect another duplicate with the right hash.
func TestDo_ConcurrentCallWithAnotherHashIsAMismatch(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.charged(context.Background(), "k")
	var calls sync.WaitGroup
	for i := range 16 {
		hash, want := hashA, error(nil)
		if i%2 == 0 {
			hash, want = idem.Hash{byte(2 + i%4)}, idem.ErrMismatch
		}
		calls.Go(func() {
			for range 20 {
				if _, err := idemDo(context.Background(), l.pool, scope, "k", hash, neverCalled(t), idem.WithWait(limit)); !errors.Is(err, want) {
					t.Errorf("hash %v: err = %v, want %v", hash[0], err, want)
					return
				}
			}
		})
	}
	calls.Wait()
	l.wantOnce("k")
}

// A migration that locks the table blocks claims of every key. The server's answer is the same as
// for a lock on one record.
func TestDo_WaitsForALockedTableAsForAHeldKey(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]string{"no lock_timeout": "0", "a lock_timeout": "10ms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			l := newLedger(t)
			on := ledgerOn(t, l.process(withParameter("lock_timeout", timeout)))
			on.charged(ctx, "before") // prepares the statements
			unlock := lockRecords(t, l.pool)
			wantIs(t, errOf(idemDo(ctx, on.pool, scope, "k", hashA, on.charge("k"), idem.WithWait(10*time.Millisecond))), idem.ErrInProgress)
			waits := calling(ctx, on.pool, "k", hashA, on.charge("k"), idem.WithWait(limit))
			awaitBlocked(t, l.pool, 1)
			unlock()
			wantIs(t, await(t, "the call that has time", waits), nil)
			on.wantOnce("k")
		})
	}
}

// A follower with WithWait(0) waits neither for a leader whose claim is blocked, nor for one that
// gets no connection.
func TestDo_NoWaitEndsWhileTheLeaderCannotClaim(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	l := newLedger(t)
	pool := l.process(maxConns(1))
	for name, block := range map[string]func() (release func()){
		"blocked": func() func() {
			l.charged(ctx, "blocked")
			purge := l.begin(ctx)
			execute(t, purge, "delete from idem.records")
			return func() { _ = purge.Rollback(ctx) }
		},
		"no connection": func() func() {
			conn := must(pool.Acquire(ctx))
			return conn.Release
		},
	} {
		release, w := block(), newWatch()
		var patients []<-chan error
		for range 2 {
			patients = append(patients, calling(context.Background(), pool, name, hashA, l.charge(name), idem.WithWait(limit), idem.WithObserver(w), patient))
		}
		w.await(t, "waiting", 1) // so one of the two leads
		wantIs(t, errOf(idemDo(ctx, pool, scope, name, hashA, l.charge(name), idem.WithWait(0))), idem.ErrInProgress, name)
		release()
		for _, patient := range patients {
			wantIs(t, await(t, "the patient calls", patient), nil, name)
		}
		l.wantOnce(name)
	}
}

// A call that gets no connection in time returns ErrPoolExhausted. If the caller's context ends
// first, the call returns the error of the context.
func TestDo_ExhaustedPoolIsErrPoolExhausted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	defer must(l.pool.Acquire(context.Background())).Release()
	const patience = 30 * time.Millisecond
	for name, option := range map[string]idem.Option{
		"by default": idem.WithTTL(idem.DefaultTTL), "a likely replay": idem.WithReplayLikely(), "no wait": idem.WithWait(0),
	} {
		waits := l.pool.Stat().CanceledAcquireCount()
		_, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), withLimits(patience, 0, 0), option)
		var exhausted *idem.PoolExhaustedError
		if !errors.As(err, &exhausted) || !errors.Is(err, idem.ErrPoolExhausted) || exhausted.Waited != patience {
			t.Fatalf("%s: err = %v", name, err)
		}
		if !idem.Retryable(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Retryable = %v, a deadline = %v", name, idem.Retryable(err), errors.Is(err, context.DeadlineExceeded))
		}
		if n := l.pool.Stat().CanceledAcquireCount() - waits; n != 1 {
			t.Errorf("%s: %d acquisitions were canceled, want 1", name, n)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrPoolExhausted) || idem.Retryable(err) {
		t.Errorf("err = %v", err)
	}
}

// A demoted primary refuses writes. Its connection is useless, and a new one may lead to the new
// primary.
func TestDo_ClosesTheConnectionToADemotedPrimary(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, retries := range []int{0, 1} {
		pool := l.process(maxConns(1))
		execute(t, pool, "set default_transaction_read_only = on")
		key := fmt.Sprint(retries, " retries")
		if _, err := idemDo(ctx, pool, scope, key, hashA, l.charge(key), idem.WithRetries(retries)); retries == 0 && !idem.Retryable(err) || retries > 0 && err != nil {
			t.Errorf("%s: %v", key, err)
		}
		wantIs(t, errOf(idemDo(ctx, pool, scope, key, hashA, l.charge(key), idem.WithRetries(0))), nil, key, " the next call")
		l.wantOnce(key)
	}
}

// holders are ways to hold the key "k" until the end of the test that no advisory lock shows.
var holders = map[string]func(*testing.T, *ledger){
	"a transaction that deletes the record": func(t *testing.T, l *ledger) {
		l.charged(t.Context(), "k")
		execute(t, l.begin(context.Background()), "delete from idem.records")
	},
	"a transaction that deletes the expired record": func(t *testing.T, l *ledger) {
		l.charged(t.Context(), "k")
		l.expire("k")
		execute(t, l.begin(context.Background()), "delete from idem.records")
	},
	"a call without the lock": func(t *testing.T, l *ledger) {
		none := withLock(func(string, string) *int64 { return nil })
		noError(t, errOf(idem.DoTx(context.Background(), l.begin(context.Background()), scope, "k", hashA, l.charge("k"), none)))
	},
}

// A lock on the record itself blocks a claim inside the server, and no advisory lock shows it. Each
// holder releases the key after the answer, so a call that waited for it would wait until its
// limit. The connection of a claim that was blocked is closed, because a CancelRequest may still
// arrive for it.
func TestDo_WaitEndsWhateverHoldsTheKey(t *testing.T) {
	t.Parallel()
	for name, hold := range holders {
		for _, mode := range fewModes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				hold(t, l)
				on := ledgerOn(t, l.process(withMode(mode), maxConns(1)))
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				err := pgx.BeginFunc(ctx, on.pool, func(tx pgx.Tx) error {
					wantIs(t, errOf(idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t))), idem.ErrInProgress, "DoTx")
					return note(ctx, tx, "the caller's own")
				})
				wantIs(t, err, nil)
				tx := on.begin(ctx)
				past(t, ctx, tx)
				wantIs(t, errOf(idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t))), idem.ErrInProgress, "DoTx without a savepoint")
				wantIs(t, tx.Commit(ctx), pgx.ErrTxCommitRollback, "COMMIT")
				for _, wait := range []time.Duration{0, 10 * time.Millisecond} {
					wantIs(t, errOf(idemDo(ctx, on.pool, scope, "k", hashA, neverCalled(t), idem.WithWait(wait))), idem.ErrInProgress, "Do")
				}
				on.wantHealthy()
				if n := on.pool.Stat().NewConnsCount(); n > 2 {
					t.Errorf("the pool made %d connections", n)
				}
			})
		}
	}
}
