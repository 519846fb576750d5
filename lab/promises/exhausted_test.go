package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// occupy acquires the only connection of a pool until the end of the test.
func occupy(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
}

// An exhausted pool returns an error of its own, and not that of the caller's deadline.
func TestPoolThatStaysExhaustedIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	occupy(t, l.pool)
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
			t.Errorf("%s: it waited %d times for as long as it tells", name, n)
		}
	}
}

func TestContextThatEndsWhileThePoolIsExhaustedIsTheCallersOwnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	occupy(t, l.pool)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrPoolExhausted) || idem.Retryable(err) {
		t.Errorf("err = %v", err)
	}
}

// A demoted primary refuses writes. Its connection is useless, and a new one may lead to the new
// primary.
func TestConnectionToADemotedPrimaryIsClosedAndTheErrorRetryable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	demote := func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		if _, err := pool.Exec(ctx, "set default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("without retries", func(t *testing.T) {
		pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1))
		demote(t, pool)
		_, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithRetries(0))
		if !idem.Retryable(err) {
			t.Errorf("err = %v", err)
		}
		if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithRetries(0)); err != nil {
			t.Errorf("the next call: %v", err)
		}
		l.wantOnce("k")
	})
	t.Run("with retries", func(t *testing.T) {
		pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1))
		demote(t, pool)
		w := newWatch()
		if _, err := idemDo(ctx, pool, scope, "k2", hashA, l.charge("k2"), idem.WithObserver(w)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"retried", "executed"}, w.all()); diff != "" {
			t.Error(diff)
		}
		l.wantOnce("k2")
	})
}

// holders are ways to hold the key "k" until the end of the test that no advisory lock shows.
var holders = map[string]func(*testing.T, *ledger){
	"a transaction that deletes the record": func(t *testing.T, l *ledger) {
		ctx := context.Background()
		if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.begin(ctx).Exec(ctx, "delete from idem.records"); err != nil {
			t.Fatal(err)
		}
	},
	"a transaction that deletes the expired record": func(t *testing.T, l *ledger) {
		ctx := context.Background()
		if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = clock_timestamp() - interval '1 hour'"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.begin(ctx).Exec(ctx, "delete from idem.records"); err != nil {
			t.Fatal(err)
		}
	},
	"a call without the lock": func(t *testing.T, l *ledger) {
		none := withLock(func(string, string) *int64 { return nil })
		if _, err := idem.DoTx(context.Background(), l.begin(context.Background()), scope, "k", hashA, l.charge("k"), none); err != nil {
			t.Fatal(err)
		}
	},
}

// Each holder releases the key after the answer, so a call that waited for it would wait until its
// limit.
func TestNoWaitAnswersAtOnceWhateverHoldsTheKey(t *testing.T) {
	t.Parallel()
	for name, hold := range holders {
		for _, mode := range execModes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t)
				hold(t, l)
				pool := pgtest.Open(t, l.pool.Config().ConnString(), withMode(mode))
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				if _, err := idemDo(ctx, pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
					t.Errorf("Do: %v", err)
				}
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k")); !errors.Is(err, idem.ErrInProgress) {
						t.Errorf("DoTx: %v", err)
					}
					return note(ctx, tx, "the caller's own")
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// acquiring signals when a connection of a pool is requested.
type acquiring struct {
	pgx.QueryTracer
	asked chan struct{}
}

func (a acquiring) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	a.asked <- struct{}{}
	return ctx
}

func (acquiring) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (acquiring) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (acquiring) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestNoWaitAnswersAtOnceWhileTheLeaderWaitsForThePool(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	asked := make(chan struct{}, 8)
	pool := pgtest.Open(t, l.pool.Config().ConnString(), maxConns(1), func(config *pgxpool.Config) {
		config.ConnConfig.Tracer = acquiring{asked: asked}
	})
	occupied, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the connection", asked)
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"))
		done <- err
	}()
	await(t, "the leader to ask for a connection", asked)
	_, err = idemDo(context.Background(), pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0))
	if !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v", err)
	}
	occupied.Release()
	if err := await(t, "the leader", done); err != nil {
		t.Error(err)
	}
	l.wantOnce("k")
}
