package promises_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// While fn runs longer than its own TTL, no call may take the key over. A record that is not
// committed cannot expire. A follower that began before the record expired shares it.
func TestTTL_FnSlowerThanItsTTLKeepsTheKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Open(t, dsn)
	l.charged(ctx, "k")
	l.expire("k") // the claim then takes over an expired record that others can see
	held, watch := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond)), newWatch()
	follower := calling(ctx, l.pool, "k", hashA, neverCalled(t), idem.WithObserver(watch), idem.WithWait(limit))
	watch.await(t, string(idem.EventWaiting), 1)
	for range 5 {
		wantIs(t, errOf(idemDo(ctx, elsewhere, scope, "k", hashA, l.charge("k"), idem.WithWait(0))), idem.ErrInProgress)
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
	l := newLedger(t)
	old, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(idem.Response{Status: 7, Header: header{"A": {"b"}}, Body: []byte("old")}), sealed("a"))
	noError(t, err)
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
	wantReplay(t, "taken over", res)(idemDo(ctx, l.pool, scope, "k", hashB, neverCalled(t)))
	wantIs(t, errOf(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t))), idem.ErrMismatch, "the expired hash still counts")
}

// A leader may have read the record long before its answer arrives. For a call that began in the
// meantime, the record has expired.
func TestTTL_FollowerDoesNotShareARecordExpiredBeforeItsCall(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, proxy := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Proxy(t, dsn)
	slow := ledgerOn(t, pgtest.Open(t, proxy.DSN()))
	for life := 500 * time.Millisecond; ; life *= 2 { // until the leader is fast enough to read the record before it expires
		key := life.String()
		noError(t, errOf(idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithTTL(life))))
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

// A call reads the outcome of an unanswered COMMIT from the record. If the record has expired and
// was taken over in the meantime, the call must report neither that nothing was committed nor that
// it may be retried.
func TestDo_CommitWithATakenOverRecordIsUnknown(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
	done := calling(t.Context(), pool, "k", hashA, p.charge("k"), idem.WithTTL(50*time.Millisecond))
	event := await(t, "the trap", trap.Fired())
	for replayed := true; replayed; {
		res, err := idemDo(t.Context(), p.pool, scope, "k", hashA, p.charge("k"))
		noError(t, err)
		replayed = res.Replayed
	}
	event.Conn.Cut(pgproxy.Reset)
	wantIs(t, await(t, "the call", done), idem.ErrOutcomeUnknown)
	if n := p.entries("k"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// expireAll makes every record expired.
func (l *ledger) expireAll() {
	l.t.Helper()
	execute(l.t, l.pool, "update idem.records set expires_at = clock_timestamp()")
}
