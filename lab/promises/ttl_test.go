package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/purge"
)

// Only the database's clock at the end of fn counts. Whatever changes the expiry that the claim has
// written, the record lives for the TTL from the time at which its response is recorded.
func TestTTL_CountsFromTheEndOfFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const ttl = time.Hour
	for _, left := range []time.Duration{-24 * time.Hour, -time.Microsecond, ttl - time.Second, ttl + time.Second} {
		key := left.String()
		res, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			// Imitate that so much time has passed since the claim.
			execute(t, tx, "update idem.records set expires_at = clock_timestamp() + $1", left)
			return l.charge(key)(tx)
		}, idem.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		if lives := res.ExpiresAt.Sub(res.CompletedAt); lives != ttl {
			t.Errorf("with %v left at the end of fn the record lives %v", left, lives)
		}
		if n := l.count(`select count(*) from idem.records where key = $1 and expires_at = $2 and completed_at = $3 and created_at = $4`,
			key, res.ExpiresAt, res.CompletedAt, res.CreatedAt); n != 1 {
			t.Error("the result tells other times than the record")
		}
	}
}

// While fn runs longer than its own TTL, no call may take the key over. A record that is not
// committed cannot expire. A follower that began before the record expired shares it.
func TestTTL_FnSlowerThanItsTTLKeepsTheKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	l.charged(ctx, "k")
	l.expire("k") // the claim then takes over an expired record that others can see
	held, watch := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond)), newWatch()
	follower := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithObserver(watch), idem.WithWait(limit))
		follower <- err
	}()
	watch.await(t, string(idem.EventWaiting), 1)
	for range 5 {
		if _, err := idemDo(ctx, elsewhere, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("err = %v, want ErrInProgress", err)
		}
	}
	held.release()
	if err := errors.Join(held.wait(t), await(t, "the follower", follower)); err != nil {
		t.Error(err)
	}
	if l.entries("k") != 2 || l.records("k") != 1 {
		t.Errorf("%d effects, %d records", l.entries("k"), l.records("k"))
	}
}

// Every field of a record that was taken over belongs to the new execution.
func TestTTL_TakenOverRecordKeepsNothingOfTheExpiredOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	old, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(idem.Response{Status: 7, Header: header{"A": {"b"}}, Body: []byte("old")}), sealed("a"))
	if err != nil {
		t.Fatal(err)
	}
	l.expire("k")
	if _, err := idemDo(ctx, l.pool, scope, "k", hashB, l.failing("k", errBusiness)); err != errBusiness ||
		l.count("select count(*) from idem.records where execution_id = $1", old.ExecutionID) != 1 {
		t.Errorf("a failed execution touched the expired record: %v", err)
	}
	res, err := idemDo(ctx, l.pool, scope, "k", hashB, func(tx pgx.Tx) (idem.Response, error) {
		var clean bool
		err := tx.QueryRow(ctx, "select sealed_by is null and body is null and header is null from idem.records").Scan(&clean)
		if err != nil || !clean {
			t.Errorf("after the takeover clean is %t, %v", clean, err)
		}
		return idem.Response{}, err
	})
	if err != nil || res.ExecutionID == old.ExecutionID || !res.CreatedAt.After(old.CreatedAt) {
		t.Errorf("%+v, %v", res, err)
	}
	again, err := idemDo(ctx, l.pool, scope, "k", hashB, neverCalled(t))
	res.Replayed = true
	if diff := cmp.Diff(res, again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t)); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("the expired hash still counts: %v", err)
	}
}

// A leader may have read the record long before its answer arrives. For a call that began in the
// meantime, the record has expired.
func TestTTL_FollowerDoesNotShareARecordExpiredBeforeItsCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, proxy := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Proxy(t, dsn)
	slow := ledgerOn(t, pgtest.Open(t, proxy.DSN()))
	for life := 500 * time.Millisecond; ; life *= 2 { // until the leader is fast enough to read the record before it expires
		key := life.String()
		if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithTTL(life)); err != nil {
			t.Fatal(err)
		}
		trap := proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("-- name: Load")), pgproxy.Freeze)
		type answer struct {
			idem.Result
			err error
		}
		leader, follower := make(chan answer, 1), make(chan answer, 1)
		do := func(to chan answer, opts ...idem.Option) {
			res, err := idemDo(ctx, slow.pool, scope, key, hashA, slow.charge(key), opts...)
			to <- answer{res, err}
		}
		go do(leader, idem.WithTTL(time.Hour))
		event := await(t, "the answer to be held", trap.Fired())
		awaitTrue(t, l.pool, "select expires_at < clock_timestamp() from idem.records where key = '"+key+"'")
		watch := newWatch()
		go do(follower, idem.WithTTL(time.Hour), idem.WithObserver(watch), idem.WithWait(limit))
		watch.await(t, string(idem.EventWaiting), 1)
		event.Conn.Resume()
		first, second := await(t, "the leader", leader), await(t, "the follower", follower)
		if !first.Replayed {
			continue
		}
		if second.err != nil || second.Replayed {
			t.Errorf("the record had expired before the call began: %+v, %v", second.Result, second.err)
		}
		return
	}
}

// The record tells the outcome of a COMMIT as long as it exists. It may have expired and been taken
// over while no call could read it. Then a call must not claim that nothing was committed, and must
// not say that it may be retried.
func TestDo_CommitWithATakenOverRecordIsUnknown(t *testing.T) {
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
	for replayed := true; replayed; {
		res, err := idemDo(t.Context(), p.pool, scope, "k", hashA, p.charge("k"))
		if err != nil {
			t.Fatal(err)
		}
		replayed = res.Replayed
	}
	event.Conn.Cut(pgproxy.Reset)
	if err := await(t, "the call", done); !errors.Is(err, idem.ErrOutcomeUnknown) {
		t.Errorf("err = %v", err)
	}
	if n := p.entries("k"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// expireAll makes every record expired.
func (l *ledger) expireAll() {
	l.t.Helper()
	if _, err := l.pool.Exec(context.Background(), "update idem.records set expires_at = clock_timestamp()"); err != nil {
		l.t.Fatal(err)
	}
}

// A takeover with WithWait(0) sets a lock_timeout. That must not make statements of fn or of the
// caller fail.
func TestDo_TakeoverLeavesLockTimeoutAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	lockTimeout := func(tx pgx.Tx) (timeout string) {
		if err := tx.QueryRow(ctx, "show lock_timeout").Scan(&timeout); err != nil {
			t.Error(err)
		}
		return timeout
	}
	fn := func(tx pgx.Tx) (idem.Response, error) {
		if timeout := lockTimeout(tx); timeout != "0" {
			t.Errorf("lock_timeout of fn is %s", timeout)
		}
		return ok, nil
	}
	l.charged(ctx, "k")
	l.expire("k")
	if res, err := idemDo(ctx, l.pool, scope, "k", hashA, fn, idem.WithWait(0)); err != nil || res.Replayed {
		t.Errorf("%+v, %v", res, err)
	}
	l.expire("k")
	tx := l.begin(ctx)
	if res, err := idem.DoTx(ctx, tx, scope, "k", hashA, fn); err != nil || res.Replayed {
		t.Errorf("%+v, %v", res, err)
	}
	if timeout := lockTimeout(tx); timeout != "0" {
		t.Errorf("lock_timeout of the caller is %s", timeout)
	}
}

// Callers take over from one another as fast as they can, with and without the advisory lock that
// serializes them before the primary key does. Only the clock of the database counts.
func TestDo_ExecutionBeginsOnlyAfterTheRecordBeforeExpired(t *testing.T) {
	t.Parallel()
	for level, lock := range map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "no lock", pgx.Serializable: "sound lock"} {
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

// takeOverInTurns makes calls of all kinds for two keys concurrently. It returns the expiry of each
// execution.
func takeOverInTurns(t *testing.T, l *ledger, level pgx.TxIsoLevel, opts []idem.Option) map[string]time.Time {
	t.Helper()
	ctx := t.Context()
	execute(t, l.pool, "create table runs (key text, execution_id text, began timestamptz, expires timestamptz)")
	options := pgx.TxOptions{IsoLevel: level}
	began := func(key string) func(pgx.Tx) (idem.Response, error) {
		return func(tx pgx.Tx) (idem.Response, error) {
			executionID, _ := idem.ExecutionID(tx)
			_, err := tx.Exec(ctx, "insert into runs values ($1, $2, clock_timestamp())", key, executionID)
			return ok, err
		}
	}
	do := func(key string, more ...idem.Option) (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, key, hashA, began(key), slices.Concat(opts, more, []idem.Option{idem.WithTxOptions(options)})...)
	}
	kinds := []func(key string) (idem.Result, error){
		func(key string) (idem.Result, error) { return do(key) },
		func(key string) (idem.Result, error) { return do(key, idem.WithWait(0)) },
		func(key string) (res idem.Result, err error) {
			err = pgx.BeginTxFunc(ctx, l.pool, options, func(tx pgx.Tx) error {
				var err error
				res, err = idem.DoTx(ctx, tx, scope, key, hashA, began(key), opts...)
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
			for round := range 60 {
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

// A purge keeps an expired record for another hour. A call whose COMMIT had no answer can then
// still read the record, although it has expired.
func TestDo_CommitIsResolvedAlthoughAPurgeGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, pool, scope, "k", hashA, p.charge("k"), idem.WithTTL(time.Millisecond), patient)
		done <- err
	}()
	event := await(t, "the COMMIT", trap.Fired())
	awaitTrue(t, p.pool, "select count(*) = 1 from idem.records where expires_at < clock_timestamp()")
	if rep, err := purge.Once(ctx, p.pool, purge.Options{MaxLag: -1, MaxDead: -1}); err != nil || rep.Kept != 1 {
		t.Errorf("%v, %v", rep, err)
	}
	event.Conn.Cut(pgproxy.Reset)
	if err := await(t, "the call", done); err != nil {
		t.Error(err)
	}
	if n := p.entries("k"); n != 1 {
		t.Errorf("%d effects", n)
	}
}
