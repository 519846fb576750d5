package promises_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// warmed returns a pool of one connection through the proxy. The connection has prepared every
// statement.
func (p *proxied) warmed(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, p.proxy.DSN(), append(configure, maxConns(1))...)
	for _, key := range []string{"warm", "warm"} {
		noError(t, errOf(idemDo(t.Context(), pool, scope, key, hashA, p.charge(key))))
	}
	waitIdle(t, pool)
	p.proxy.ResetTally()
	return pool
}

// unlessPlansAreDue repeats a count. A connection whose plans are two seconds old makes them again
// in a round trip for which no caller waits. On a busy machine that round trip can fall into a
// count.
func unlessPlansAreDue(count func(try int) bool) bool {
	for try := range 5 {
		if count(try) {
			return true
		}
	}
	return false
}

// The caller of a replay has its answer after one round trip. In this test the proxy blocks the
// second one, which is the rollback.
func TestRoundTrips_ReplayCostsOne(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("rollback")), pgproxy.Freeze)
	res, err := idemDo(t.Context(), pool, scope, "warm", hashA, p.charge("warm"))
	if err != nil || !res.Replayed {
		t.Fatal(res, err)
	}
	event := await(t, "the rollback", trap.Fired())
	if n := p.proxy.Tally().Turns; n != 1+1 { // the replay, and the rollback that is blocked
		t.Errorf("a replay takes %d round trips, the rollback included", n)
	}
	event.Conn.Resume()
	waitIdle(t, pool)
	// A likely replay is one statement. It begins no transaction, so nothing has to be rolled back.
	var n int
	likely := unlessPlansAreDue(func(int) bool {
		p.proxy.ResetTally()
		res, err := idemDo(t.Context(), pool, scope, "warm", hashA, p.charge("warm"), idem.WithReplayLikely())
		if err != nil || !res.Replayed {
			t.Fatal(res, err)
		}
		waitIdle(t, pool)
		n = p.proxy.Tally().Turns
		return n == 1
	})
	if !likely {
		t.Errorf("a likely replay takes %d round trips", n)
	}
	if res, err := idemDo(t.Context(), pool, scope, "new", hashA, p.charge("new"), idem.WithReplayLikely()); err != nil || res.Replayed {
		t.Errorf("a key that is new after all: %+v, %v", res, err)
	}
	wantIs(t, errOf(idemDo(t.Context(), pool, scope, "new", hashB, p.charge("new"), idem.WithReplayLikely())), idem.ErrMismatch, "another request")
	p.wantOnce("new")
}

func TestRoundTrips_DoTxCostsTwo(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	tx, err := pool.Begin(t.Context())
	noError(t, err)
	defer tx.Rollback(t.Context())
	noError(t, errOf(idem.DoTx(t.Context(), tx, scope, "first", hashA, p.charge("first")))) // makes the connection prepare the statements
	var n int
	ok := unlessPlansAreDue(func(try int) bool {
		p.proxy.ResetTally()
		key := fmt.Sprint("k", try)
		noError(t, errOf(idem.DoTx(t.Context(), tx, scope, key, hashA, p.charge(key))))
		n = p.proxy.ResetTally().Turns
		return n == 3
	})
	if !ok {
		t.Errorf("DoTx with one statement takes %d round trips, want 3", n)
	}
}
