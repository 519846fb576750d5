package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

func TestDo_ExecutesOnceAndReplaysTheSameBytes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k1", hashA, l.charge("k1"))
	noError(t, err)
	if first.Replayed || first.Rejected || first.Status != 201 {
		t.Errorf("first = %+v", first)
	}
	wantReplay(t, "k1", first)(idemDo(ctx, l.pool, scope, "k1", hashA, l.charge("k1")))
	if l.runs.Load() != 1 {
		t.Errorf("fn ran %d times", l.runs.Load())
	}
	l.wantOnce("k1")
}

func TestDo_AnotherHashIsAMismatchThatRevealsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	stored := idem.Response{Status: 987654321, Header: header{"X-Secret": {"token"}}, Body: []byte("confidential")}
	first, err := idemDo(ctx, l.pool, scope, "a key of some length", hashA, answer(stored))
	noError(t, err)
	got, err := idemDo(ctx, l.pool, scope, "a key of some length", hashB, neverCalled(t))
	var mismatch *idem.MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, idem.ErrMismatch) || idem.Retryable(err) || !mismatch.CreatedAt.Equal(first.CreatedAt) {
		t.Fatalf("err = %v", err)
	}
	wantSame(t, idem.Result{}, got)
	for _, text := range []string{fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", mismatch)} {
		for _, secret := range []string{"987654321", "X-Secret", "token", "confidential", first.ExecutionID} {
			if strings.Contains(text, secret) {
				t.Errorf("%s reveals %q", text, secret)
			}
		}
	}
}

// The writes of a fn that rejects are undone, also those of its joined calls and a failed
// statement.
func TestReject_UndoesTheWritesAndIsFinal(t *testing.T) {
	t.Parallel()
	declined := idem.Response{Status: 402, Body: []byte(`{"error":"declined"}`)}
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			first, err := outer(ctx, l, "k", oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
				_, err := l.charge("k")(tx)
				_, inner := idem.DoTx(ctx, tx, scope, "inner", hashA, l.charge("inner"))
				_, failed := tx.Exec(ctx, "insert into ledger (key) values (null)")
				if err != nil || inner != nil || failed == nil {
					t.Error(err, inner, failed)
				}
				return idem.Response{}, fmt.Errorf("because of %v: %w", failed, idem.Reject(declined))
			}))
			if err != nil || !first.Rejected || first.Replayed {
				t.Fatalf("%+v, %v", first, err)
			}
			wantSame(t, declined, first.Response)
			wantReplay(t, name, first)(idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")))
			l.wantStored("k", 0, 1)
			l.wantFree("inner")
		})
	}
}

func TestExecutionID_IsTheSameInFnResultAndRecord(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	seen := map[string]bool{}
	for name, outer := range outers {
		for how, end := range map[string]error{"": nil, " rejected": idem.Reject(ok)} {
			key := name + how
			var ids []string
			note := func(tx pgx.Tx) {
				id, _ := idem.ExecutionID(tx)
				ids = append(ids, id)
			}
			res, err := outer(ctx, l, key, func(tx pgx.Tx) (idem.Response, error) {
				note(tx)
				err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { note(sp); return nil })
				return ok, errors.Join(err, end)
			})
			noError(t, err)
			replay, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
			noError(t, err)
			var recorded string
			noError(t, l.pool.QueryRow(ctx, "select execution_id::text from idem.records where key = $1", key).Scan(&recorded))
			for _, id := range append(ids, res.ExecutionID, replay.ExecutionID) {
				if id != recorded {
					t.Errorf("%s: execution ids %q, %q, %q differ from the recorded %q", key, ids, res.ExecutionID, replay.ExecutionID, recorded)
				}
			}
			if seen[recorded] {
				t.Error("two executions have one id")
			}
			seen[recorded] = true
		}
	}
	for _, tx := range []pgx.Tx{nil, l.begin(ctx)} {
		if id, ok := idem.ExecutionID(tx); ok || id != "" {
			t.Errorf("a transaction without an execution has the id %q", id)
		}
	}
}

var isoLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// locks are the advisory locks that a claim can take. The guarantee does not depend on them.
var locks = map[string][]idem.Option{
	"sound lock":     nil,
	"no lock":        {withLock(func(string, string) *int64 { return nil })},
	"colliding lock": {withLock(func(string, string) *int64 { return new(int64) })},
}

// Programs of different versions take the same lock of a key.
func TestDo_TakesTheLockOfTheKey(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	defer l.hold(t, "k", hashA, nil).release()
	if n := l.count(`select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1 and (classid::bigint << 32) | objid::bigint = $1
		and database = (select oid from pg_database where datname = current_database())`, db.LockOf(scope, "k")); n != 1 {
		t.Errorf("%d locks", n)
	}
}

// The guarantee rests on the primary key and on atomicity. It holds at every isolation level, and
// whether each key has its lock, no key has one, or all keys share one.
func TestDo_ExecutesOnceAtEveryIsolationLevelWithAnyLock(t *testing.T) {
	t.Parallel()
	for lock, level := range map[string]pgx.TxIsoLevel{
		"sound lock": pgx.Serializable, "no lock": pgx.ReadCommitted, "colliding lock": pgx.RepeatableRead,
	} {
		t.Run(fmt.Sprint(lock, "/", level), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, maxConns(2))
			pools := []*pgxpool.Pool{l.pool} // only the database can serialize their calls
			for range 7 {
				pools = append(pools, l.process(maxConns(2)))
			}
			for round := range 10 {
				key := fmt.Sprint("k", round)
				var executed atomic.Int64
				options := append([]idem.Option{idem.WithWait(limit), idem.WithRetries(100),
					idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})}, locks[lock]...)
				storm(len(pools), func(i int) {
					res, err := idemDo(ctx, pools[i], scope, key, hashA, l.charge(key), options...)
					wantIs(t, err, nil)
					if !res.Replayed {
						executed.Add(1)
					}
				})()
				if executed.Load() != 1 {
					t.Errorf("%s: %d calls executed", key, executed.Load())
				}
				l.wantOnce(key)
			}
		})
	}
}

// Without the advisory lock, the loser of the race waits inside its INSERT. Then it replays
// the winner's response, or executes itself if the winner has failed.
func TestDo_LoserOfTheInsertRaceSeesTheOutcomeOfTheWinner(t *testing.T) {
	t.Parallel()
	for _, level := range isoLevels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			other := l.process()
			options := append([]idem.Option{idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}), idem.WithWait(limit)}, locks["no lock"]...)
			for key, end := range map[string]error{"succeeds": nil, "fails": errBusiness} {
				first := l.hold(t, key, hashA, end, options...)
				var second idem.Result
				done := inBackground(func() (err error) {
					second, err = idemDo(context.Background(), other, scope, key, hashA, l.charge(key), options...)
					return err
				})
				awaitBlocked(t, l.pool, 1)
				first.release()
				first.wait(t)
				if err := await(t, "the loser", done); err != nil || second.Replayed != (end == nil) {
					t.Errorf("the winner %s: %+v, %v", key, second, err)
				}
				l.wantOnce(key)
			}
		})
	}
}

func TestDo_RerunsAreBoundedAndEndInTheServersError(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for want, options := range map[int64][]idem.Option{4: nil, 1: {idem.WithRetries(0)}, 2: {idem.WithRetries(7), idem.WithRetries(1)}} {
		key := fmt.Sprint("k", want)
		l.runs.Store(0)
		ids := map[string]bool{}
		_, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			id, _ := idem.ExecutionID(tx)
			ids[id] = true
			_, err := l.charge(key)(tx)
			execute(t, tx, "savepoint s")
			_, conflict := tx.Exec(ctx, `do $$ begin raise exception 'conflict' using errcode = '40001'; end $$`)
			return idem.Response{}, errors.Join(err, conflict)
		}, options...)
		if !txn.HasCode(err, "40001") || !idem.Retryable(err) {
			t.Errorf("err = %v", err)
		}
		if n := l.runs.Load(); n != want || len(ids) != 1 {
			t.Errorf("fn ran %d times, want %d, with the execution ids %v", n, want, ids)
		}
		l.wantNone(key)
	}
}

func TestDo_NestedOnAnExhaustedPoolIsAnErrorNotADeadlock(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	_, err := idemDo(ctx, l.pool, scope, "outer", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := idemDo(ctx, l.pool, scope, "inner", hashA, l.charge("inner"), withLimits(50*time.Millisecond, 0, 0))
		return idem.Response{}, err
	})
	wantIs(t, err, idem.ErrPoolExhausted)
	l.wantNone("outer")
	l.wantNone("inner")
}

// The main stress test: 32 goroutines, two pools (which idem treats as two processes), 100 keys,
// and every kind of failure of fn.
func TestDo_OneEffectAndResponseUnderContentionAndFailures(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(8))
	pools := []*pgxpool.Pool{l.pool, l.process(maxConns(8))}
	const keys, callers = 100, 32
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var answers [keys]sync.Map
	var executed atomic.Int64
	storm(callers, func(caller int) {
		rng := rand.New(rand.NewPCG(seed, uint64(caller)))
		for _, i := range rng.Perm(keys) {
			key, pool := fmt.Sprint("k", i), pools[rng.IntN(2)]
			var res idem.Result
			err := errBusiness
			escape(t, func() {
				res, err = idemDo(ctx, pool, scope, key, hashA, failing(l.charge(key), rng), idem.WithWait(limit))
			})
			if err != nil { // the caller repeats its call
				res, err = idemDo(ctx, pool, scope, key, hashA, l.charge(key), idem.WithWait(limit))
			}
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			if !res.Replayed {
				executed.Add(1)
			}
			answers[i].Store(string(res.Body), true)
		}
	})()
	if n := executed.Load(); n != keys {
		t.Errorf("%d calls reported an execution, want %d", n, keys)
	}
	for i := range keys {
		n := 0
		answers[i].Range(func(_, _ any) bool { n++; return true })
		if n != 1 {
			t.Errorf("k%d: %d different answers", i, n)
		}
		l.wantOnce(fmt.Sprint("k", i))
	}
	for _, pool := range pools {
		waitIdle(t, pool)
	}
}

// failing makes fn fail after its write in about every second run, in any of the possible ways.
func failing(fn func(pgx.Tx) (idem.Response, error), rng *rand.Rand) func(pgx.Tx) (idem.Response, error) {
	way := rng.IntN(12)
	return func(tx pgx.Tx) (idem.Response, error) {
		resp, err := fn(tx)
		if err != nil {
			return resp, err
		}
		switch way {
		case 0:
			return resp, errBusiness
		case 1:
			panic(errBusiness)
		case 2:
			_, err := tx.Exec(context.Background(), "select 1/0")
			return resp, err
		case 3:
			tx.Exec(context.Background(), "select 1/0")
			return resp, nil
		case 4:
			tx.Rollback(context.Background())
			return resp, nil
		}
		return resp, nil
	}
}

func TestLookup_ReportsTheStateOfAKey(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	look := func(key string) idem.Entry {
		t.Helper()
		status, err := idem.Lookup(ctx, l.pool, scope, key)
		noError(t, err)
		return status
	}
	held := l.hold(t, "paid", hashA, nil)
	if entry := look("paid"); entry.State != idem.StateProcessing || entry.Since.IsZero() || time.Since(entry.Since) > time.Minute {
		t.Errorf("a key in progress: %+v", entry)
	}
	if other, err := idem.Lookup(ctx, l.pool, scope+"2", "paid"); err != nil || other != (idem.Entry{State: idem.StateUnused}) {
		t.Errorf("the same key in another scope: %+v, %v", other, err)
	}
	held.release()
	noError(t, held.wait(t))
	want := idem.Entry{
		State: idem.StateCompleted, ExecutionID: held.result.ExecutionID,
		Since: held.result.CreatedAt, CompletedAt: held.result.CompletedAt, ExpiresAt: held.result.ExpiresAt,
	}
	wantSame(t, want, look("paid"))
	noError(t, errOf(idemDo(ctx, l.pool, scope, "refused", hashA, l.ending("refused", ok, idem.Reject(ok)))))
	if got := look("refused"); got.State != idem.StateFailed || got.CompletedAt.IsZero() {
		t.Errorf("a rejected key: %+v", got)
	}
	l.expire("paid")
	if got := look("paid"); got.State != idem.StateUnused {
		t.Errorf("an expired key: %+v", got)
	}
	l.pool.Close()
	if entry, err := idem.Lookup(ctx, l.pool, scope, "refused"); err == nil || entry != (idem.Entry{}) {
		t.Errorf("a pool that is closed: %+v, %v", entry, err)
	}
}

// During executions, a key that was seen in use must never appear unused later.
func TestLookup_NeverMissesAnExecutionThatCommits(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, isolation := range []string{"read committed", "serializable"} {
		reader := l.process(withParameter("default_transaction_isolation", isolation))
		for i := range 30 {
			held := l.hold(t, fmt.Sprint(isolation, i), hashA, nil)
			held.release()
			for state := idem.StateUnused; state != idem.StateCompleted; {
				entry, err := idem.Lookup(ctx, reader, scope, fmt.Sprint(isolation, i))
				if state = entry.State; err != nil || state == idem.StateUnused {
					t.Fatalf("%s: %+v, %v", isolation, entry, err)
				}
			}
			noError(t, held.wait(t))
		}
	}
}
