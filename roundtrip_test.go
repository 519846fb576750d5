package idem_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/internal/pgtest"
)

// warmed returns a pool of one connection through the proxy, on which every statement is known.
func (p *proxied) warmed(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, p.proxy.DSN(), append(configure, maxConns(1))...)
	for _, key := range []string{"warm", "warm"} {
		if _, err := idem.Do(t.Context(), pool, scope, key, hashA, p.charge(key)); err != nil {
			t.Fatal(err)
		}
	}
	waitIdle(t, pool)
	p.proxy.ResetTally()
	return pool
}

func TestFirstRunCostsNoMoreRoundTripsThanThePlainTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := p.warmed(t, withMode(mode))
			for statements := range 4 {
				fn := func(tx pgx.Tx) (idem.Response, error) {
					for range statements {
						if _, err := tx.Exec(t.Context(), "insert into ledger (key) values ('x')"); err != nil {
							return idem.Response{}, err
						}
					}
					return idem.Response{Status: 201, Body: []byte("{}")}, nil
				}
				if err := plain(t.Context(), pool, fn); err != nil {
					t.Fatal(err)
				}
				want := p.proxy.ResetTally().Turns
				if _, err := idem.Do(t.Context(), pool, scope, fmt.Sprint("k", statements), hashA, fn); err != nil {
					t.Fatal(err)
				}
				if got := p.proxy.ResetTally().Turns; got != want || want != statements+2 {
					t.Errorf("%d statements: idem.Do takes %d round trips, a plain transaction %d", statements, got, want)
				}
			}
		})
	}
}

// plain runs fn in a transaction without any idempotency.
func plain(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) (idem.Response, error)) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// The caller of a replay has its answer after one round trip: here the second one, the rollback, does not get through.
func TestReplayCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("rollback")), pgproxy.Freeze)
	res, err := idem.Do(t.Context(), pool, scope, "warm", hashA, p.charge("warm"))
	if err != nil || !res.Replayed {
		t.Fatal(res, err)
	}
	event := await(t, "the rollback", trap.Fired())
	if n := p.proxy.Tally().Turns; n != 1+1 { // one, and the rollback that is held back
		t.Errorf("a replay takes %d round trips, the rollback included", n)
	}
	event.Conn.Resume()
	waitIdle(t, pool)
}

func TestJoinedCallCostsTwoRoundTripsBesidesThoseOfFn(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := p.warmed(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := idem.DoTx(t.Context(), tx, scope, "first", hashA, p.charge("first")); err != nil { // teaches the connection its statements
		t.Fatal(err)
	}
	p.proxy.ResetTally()
	if _, err := idem.DoTx(t.Context(), tx, scope, "k", hashA, p.charge("k")); err != nil {
		t.Fatal(err)
	}
	if n := p.proxy.ResetTally().Turns; n != 3 {
		t.Errorf("DoTx with one statement takes %d round trips, want 3", n)
	}
}
