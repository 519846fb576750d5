package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// Only the database's clock at the end of fn counts. Whatever changes the expiry that the claim has
// written, the record lives for the TTL from the time at which its response is recorded.
func TestRecordLivesItsTTLFromTheEndOfFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const ttl = time.Hour
	for _, left := range []time.Duration{-24 * time.Hour, -time.Microsecond, ttl - time.Second, ttl + time.Second} {
		key := left.String()
		res, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			// Imitate that so much time has passed since the claim.
			if _, err := tx.Exec(ctx, "update idem.records set expires_at = clock_timestamp() + $1", left); err != nil {
				t.Error(err)
			}
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
		if again, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key)); err != nil || !again.Replayed {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// While fn runs longer than its own TTL, no call may take the key over. A record that is not
// committed cannot expire.
func TestKeyOfAFnSlowerThanItsTTLStaysInProgress(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := pgtest.DSN(t)
	l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	l.charged(ctx, "k")
	l.expire("k") // the claim then takes over an expired record that others can see
	held := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond))
	for range 20 {
		if _, err := idemDo(ctx, elsewhere, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("err = %v, want ErrInProgress", err)
		}
	}
	held.release()
	if err := held.wait(t); err != nil {
		t.Error(err)
	}
	if l.entries("k") != 2 || l.records("k") != 1 {
		t.Errorf("%d effects, %d records", l.entries("k"), l.records("k"))
	}
}

// Every field of a record that was taken over belongs to the new execution.
func TestTakenOverRecordKeepsNothingOfTheExpiredOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, end := range map[string]error{"completed": nil, "rejected": idem.Reject(ok), "failed": errBusiness} {
		old := l.charged(ctx, name)
		l.expire(name)
		empty := func(tx pgx.Tx) (idem.Response, error) { return idem.Response{}, end }
		res, err := idemDo(ctx, l.pool, scope, name, hashB, empty)
		if end == errBusiness {
			if err != errBusiness || l.count("select count(*) from idem.records where key = $1 and execution_id = $2", name, old.ExecutionID) != 1 {
				t.Errorf("a failed execution touched the expired record: %v", err)
			}
			continue
		}
		if err != nil || res.ExecutionID == old.ExecutionID || !res.CreatedAt.After(old.CreatedAt) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		again, err := idemDo(ctx, l.pool, scope, name, hashB, l.charge(name))
		res.Replayed = true
		if diff := cmp.Diff(res, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if again.Header != nil || end == nil && (again.Body != nil || again.Status != 0) {
			t.Errorf("%s: something of the expired response is left: %+v", name, again)
		}
		if _, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name)); !errors.Is(err, idem.ErrMismatch) {
			t.Errorf("%s: the expired hash still counts: %v", name, err)
		}
	}
}

// Someone has set the expiry of a record to infinity by SQL.
func TestRecordUntilInfinityIsReplayed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	first := l.charged(ctx, "k")
	if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = 'infinity', created_at = '-infinity'"); err != nil {
		t.Fatal(err)
	}
	again, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
	if err != nil || !again.Replayed || again.ExecutionID != first.ExecutionID || again.ExpiresAt.Year() < 9999 {
		t.Errorf("%+v, %v", again, err)
	}
	if entry, err := idem.Lookup(ctx, l.pool, scope, "k"); err != nil || entry.State != idem.StateCompleted || entry.ExpiresAt.Year() < 9999 {
		t.Errorf("Lookup: %+v, %v", entry, err)
	}
}

// A leader may have read the record long before its answer arrives. For a call that began in the
// meantime, the record has expired.
func TestFollowerIsNotGivenARecordThatHadExpiredBeforeItsCall(t *testing.T) {
	t.Parallel()
	for name, hash := range map[string]idem.Hash{"the same request": hashA, "another request": hashB} {
		t.Run(name, func(t *testing.T) {
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
					res, err := idemDo(ctx, slow.pool, scope, key, hash, slow.charge(key), opts...)
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
				if !first.Replayed && !errors.Is(first.err, idem.ErrMismatch) {
					continue
				}
				if second.err != nil || second.Replayed {
					t.Errorf("the record had expired before the call began: %+v, %v", second.Result, second.err)
				}
				return
			}
		})
	}
}

// The leader's answer still serves a follower that began before the record expired.
func TestFollowerIsGivenARecordThatExpiresWhileItWaits(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	watch := newWatch()
	held := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond))
	follower := make(chan idem.Result, 1)
	go func() {
		res, err := idemDo(context.Background(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithObserver(watch), idem.WithWait(limit))
		if err != nil {
			t.Error(err)
		}
		follower <- res
	}()
	watch.await(t, string(idem.EventWaiting), 1)
	held.release()
	if err := held.wait(t); err != nil {
		t.Fatal(err)
	}
	if res := await(t, "the follower", follower); !res.Replayed || l.runs.Load() != 1 {
		t.Errorf("%+v after %d runs", res, l.runs.Load())
	}
}
