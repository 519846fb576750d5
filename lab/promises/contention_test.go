package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestSmallPoolsNeverDeadlock(t *testing.T) {
	t.Parallel()
	for _, conns := range []int32{1, 2} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
			defer cancel()
			l := newLedger(t, maxConns(conns))
			var calls sync.WaitGroup
			for i := range 300 {
				key := fmt.Sprint("k", i%10)
				calls.Go(func() {
					if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithWait(limit)); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			for i := range 10 {
				l.wantOnce(fmt.Sprint("k", i))
			}
		})
	}
}

func TestNestedDoOnAnExhaustedPoolIsAnErrorNotADeadlock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	_, err := idemDo(ctx, l.pool, scope, "outer", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := idemDo(ctx, l.pool, scope, "inner", hashA, l.charge("inner"), withLimits(50*time.Millisecond, 0, 0))
		return idem.Response{}, err
	})
	if !errors.Is(err, idem.ErrPoolExhausted) {
		t.Errorf("err = %v", err)
	}
	l.wantNone("outer")
	l.wantNone("inner")
}

// The main stress test: 64 goroutines, two pools (which idem treats as two processes), 200 keys,
// and every kind of failure of fn.
func TestEveryKeyHasOneEffectAndOneAnswerUnderContentionAndFailures(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	pools := []*pgxpool.Pool{pgtest.Open(t, dsn, maxConns(8)), pgtest.Open(t, dsn, maxConns(8))}
	l := ledgerOn(t, pools[0])
	const keys, callers = 200, 64
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var answers [keys]sync.Map
	var executed atomic.Int64
	var calls sync.WaitGroup
	for caller := range callers {
		rng := rand.New(rand.NewPCG(seed, uint64(caller)))
		calls.Go(func() {
			for _, i := range rng.Perm(keys) {
				key := fmt.Sprint("k", i)
				res, err := callUntilAnswered(ctx, pools[rng.IntN(2)], key, failing(l.charge(key), rng), l.charge(key))
				if err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				if !res.Replayed {
					executed.Add(1)
				}
				answers[i].Store(string(res.Body), true)
			}
		})
	}
	calls.Wait()
	if n := executed.Load(); n != keys {
		t.Errorf("%d calls say that they executed, want %d", n, keys)
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

// callUntilAnswered does the caller's part: it repeats the call with the same key until it gets an
// answer. After a failure of fn it continues with a fn that does not fail.
func callUntilAnswered(ctx context.Context, pool *pgxpool.Pool, key string, first, again func(pgx.Tx) (idem.Response, error)) (idem.Result, error) {
	res, err := doRecovering(ctx, pool, key, first)
	if err == nil {
		return res, nil
	}
	return idemDo(ctx, pool, scope, key, hashA, again, idem.WithWait(limit))
}

func doRecovering(ctx context.Context, pool *pgxpool.Pool, key string, fn func(pgx.Tx) (idem.Response, error)) (res idem.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	return idemDo(ctx, pool, scope, key, hashA, fn, idem.WithWait(limit))
}
