package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

var isoLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// locks are the advisory locks that a claim can take. The guarantee does not depend on them.
var locks = map[string][]idem.Option{
	"sound lock":     nil,
	"no lock":        {withLock(func(string, string) *int64 { return nil })},
	"colliding lock": {withLock(func(string, string) *int64 { return new(int64) })},
}

// The guarantee rests on the primary key and on atomicity. It holds at every isolation level, and
// whether each key has its lock, no key has one, or all keys share one.
func TestConcurrentCallsExecuteOnceAtEveryIsolationLevelWithAnyLock(t *testing.T) {
	t.Parallel()
	for name, lock := range locks {
		for _, level := range isoLevels {
			t.Run(fmt.Sprint(name, "/", level), func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				dsn := pgtest.DSN(t)
				// idem treats each pool as a process, so only the database can serialize their
				// calls.
				var pools []*pgxpool.Pool
				for range 8 {
					pools = append(pools, pgtest.Open(t, dsn, maxConns(2)))
				}
				l := ledgerOn(t, pools[0])
				for round := range 10 {
					key := fmt.Sprint("k", round)
					var calls sync.WaitGroup
					var executed atomic.Int64
					for _, pool := range pools {
						calls.Go(func() {
							options := append([]idem.Option{idem.WithWait(limit), idem.WithRetries(100),
								idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})}, lock...)
							res, err := idemDo(ctx, pool, scope, key, hashA, l.charge(key), options...)
							if err != nil {
								t.Error(err)
							}
							if !res.Replayed {
								executed.Add(1)
							}
						})
					}
					calls.Wait()
					if executed.Load() != 1 {
						t.Errorf("%s: %d calls executed", key, executed.Load())
					}
					l.wantOnce(key)
				}
			})
		}
	}
}

// Without the advisory lock, the loser of the race waits inside its INSERT. Then it replays
// the winner's response, or executes itself if the winner has failed.
func TestLoserOfTheInsertRaceSeesWhatBecameOfTheWinner(t *testing.T) {
	t.Parallel()
	for _, level := range isoLevels {
		for _, end := range []error{nil, errBusiness} {
			t.Run(fmt.Sprint(level, "/winner fails with ", end), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				l := ledgerOn(t, pgtest.Open(t, dsn))
				other := pgtest.Open(t, dsn)
				options := append([]idem.Option{idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}), idem.WithWait(limit)}, locks["no lock"]...)

				first := l.hold(t, "k", hashA, end, options...)
				done := make(chan idem.Result, 1)
				go func() {
					res, err := idemDo(context.Background(), other, scope, "k", hashA, l.charge("k"), options...)
					if err != nil {
						t.Error(err)
					}
					done <- res
				}()
				awaitBlocked(t, l.pool, 1)
				first.release()
				first.wait(t)
				second := await(t, "the loser", done)
				if second.Replayed != (end == nil) {
					t.Errorf("second.Replayed = %v", second.Replayed)
				}
				l.wantOnce("k")
			})
		}
	}
}

func TestSerializationFailureRunsTheWholeTransactionAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	// Write skew: each run reads what the other writes. The barrier makes the first runs overlap.
	var barrier sync.WaitGroup
	barrier.Add(2)
	var first [2]sync.Once
	var calls sync.WaitGroup
	w := newWatch()
	for i, key := range []string{"a", "b"} {
		calls.Go(func() {
			_, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
				var n int
				if err := tx.QueryRow(ctx, "select count(*) from ledger").Scan(&n); err != nil {
					return idem.Response{}, err
				}
				first[i].Do(func() { barrier.Done(); barrier.Wait() })
				return l.charge(key)(tx)
			}, idem.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.Serializable}), idem.WithObserver(w))
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if w.count("retried") == 0 {
		t.Error("nothing was run again: the test does not provoke a failure")
	}
	l.wantOnce("a")
	l.wantOnce("b")
}

func TestDeadlockRunsTheWholeTransactionAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := l.pool.Exec(ctx, `create table stock (sku text primary key, n int); insert into stock values ('a', 9), ('b', 9)`); err != nil {
		t.Fatal(err)
	}
	var barrier sync.WaitGroup
	barrier.Add(2)
	w := newWatch()
	var calls sync.WaitGroup
	for key, order := range map[string][2]string{"k1": {"a", "b"}, "k2": {"b", "a"}} {
		var once sync.Once
		calls.Go(func() {
			_, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
				for i, sku := range order {
					if i == 1 {
						once.Do(func() { barrier.Done(); barrier.Wait() })
					}
					if _, err := tx.Exec(ctx, "update stock set n = n - 1 where sku = $1", sku); err != nil {
						return idem.Response{}, err
					}
				}
				return l.charge(key)(tx)
			}, idem.WithObserver(w))
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if w.count("retried") == 0 {
		t.Error("nothing was run again: the test does not provoke a deadlock")
	}
	if n := l.count("select min(n) from stock"); n != 7 || l.count("select max(n) from stock") != 7 {
		t.Errorf("stock is %d, want 7 of each", n)
	}
	l.wantOnce("k1")
	l.wantOnce("k2")
}

func TestRerunsAreBoundedAndEndInTheServersOwnError(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, retries := range []int{0, 1, 3} {
		key := fmt.Sprint("k", retries)
		l.runs.Store(0)
		_, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			if _, err := l.charge(key)(tx); err != nil {
				return idem.Response{}, err
			}
			_, err := tx.Exec(ctx, `do $$ begin raise exception 'conflict' using errcode = '40001'; end $$`)
			return idem.Response{}, err
		}, idem.WithRetries(retries))
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "40001" || !idem.Retryable(err) {
			t.Errorf("err = %v", err)
		}
		if n := l.runs.Load(); n != int64(retries)+1 {
			t.Errorf("WithRetries(%d): fn ran %d times", retries, n)
		}
		l.wantNone(key)
	}
}

func TestExecutionIDStaysTheSameWhenFnIsRunAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	var ids []string
	res, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		id, ok := idem.ExecutionID(tx)
		if !ok {
			t.Error("no execution id")
		}
		if ids = append(ids, id); len(ids) < 3 {
			return idem.Response{}, &pgconn.PgError{Code: "40001"}
		}
		return l.charge("k")(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != res.ExecutionID {
			t.Errorf("ids %v, result has %s", ids, res.ExecutionID)
		}
	}
	l.wantOnce("k")
}

// A call takes its snapshot in its claim and no earlier. At every isolation level it sees a commit
// that happened just before.
func TestReplayReadsACommitMadeJustBefore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, level := range isoLevels {
		l := newLedger(t)
		first, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}))
		if err != nil || !second.Replayed || second.ExecutionID != first.ExecutionID {
			t.Errorf("%s: %+v, %v", level, second, err)
		}
	}
}
