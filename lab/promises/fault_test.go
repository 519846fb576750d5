package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// proxied is a ledger with a direct connection, and a proxy to the same database that breaks
// connections.
type proxied struct {
	*ledger
	proxy *pgproxy.Proxy
	watch *watch
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	dsn := pgtest.DSN(t)
	return &proxied{ledger: ledgerOn(t, pgtest.Open(t, dsn)), proxy: pgtest.Proxy(t, dsn), watch: newWatch()}
}

// transports are the ways to connect to a server. Deadlines, hangups and resets behave differently
// on a TLS connection.
var transports = map[string]func(t testing.TB, dsn string) string{
	"plain": func(_ testing.TB, dsn string) string { return dsn },
	"TLS":   pgtest.TLS,
	"Unix":  pgtest.Unix,
}

var isClaim = pgproxy.Contains("-- name: Claim")

func TestLostAnswerToCommitIsResolvedAsCommitted(t *testing.T) {
	t.Parallel()
	for _, how := range []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup} {
		for name, over := range transports {
			t.Run(fmt.Sprint(how, "/", name), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				pool := pgtest.Open(t, over(t, p.proxy.DSN()))
				trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), how)
				first, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch))
				if err != nil {
					t.Fatal(err)
				}
				await(t, "the trap", trap.Fired())
				if first.Replayed || p.runs.Load() != 1 {
					t.Errorf("Replayed = %v after %d runs", first.Replayed, p.runs.Load())
				}
				if diff := cmp.Diff([]string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all()); diff != "" {
					t.Error(diff)
				}
				p.wantOnce("k")
				again, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"))
				first.Replayed = true
				if diff := cmp.Diff(first, again); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
			})
		}
	}
}

// TLS can read the end of a connection together with the answer to a statement of fn. The socket
// then reports nothing more, and a COMMIT that waited for the socket would wait until its context
// ends.
// that waits for it would wait for as long as its context lives.
func TestEndOfAConnectionThatTLSHasReadAheadIsNoticed(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, pgtest.TLSThatTakesLeave(t, p.proxy.DSN(), "it takes leave"), maxConns(1))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	taken := false
	_, err := idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := p.charge("k")(tx)
		if err == nil && !taken {
			taken = true
			_, err = tx.Exec(context.Background(), "select 'it ' || 'takes leave'")
		}
		return resp, err
	}, idem.WithObserver(p.watch))
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("the COMMIT was waited for until the end of the context")
	}
	if diff := cmp.Diff([]string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all()); diff != "" {
		t.Error(diff)
	}
	p.wantOnce("k")
}

// atEvent is an observer that calls a function at an event.
type atEvent struct {
	idem.Observer
	event idem.Event
	do    func()
}

func (o atEvent) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	if data.Event == o.event {
		o.do()
	}
	o.Observer.TraceEvent(ctx, data)
}

// A database that is unavailable at the first query for the outcome may be available a moment
// later.
func TestWhatBecameOfACommitIsAskedUntilThereIsAnAnswer(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	var refused atomic.Int64
	refused.Store(-1)
	pool := pgtest.Open(t, p.proxy.DSN(), maxConns(1), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if n := refused.Load(); n >= 0 && n < 10 {
				refused.Add(1)
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, addr)
		}
	})
	p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	away := atEvent{p.watch, idem.EventOutcomeUnknown, func() { refused.Store(0) }}
	res, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(away), withLimits(limit, limit, limit))
	if err != nil || res.Replayed || refused.Load() != 10 {
		t.Errorf("%+v, %v after %d dials in vain", res, err, refused.Load())
	}
	if diff := cmp.Diff([]string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all()); diff != "" {
		t.Error(diff)
	}
	p.wantOnce("k")
}

// The record exists, but reading it is not permitted. Such an error must not be retried, and the
// outcome stays unknown.
func TestRecordThatMayNotBeReadLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	rename := func(from, to string) {
		if _, err := p.pool.Exec(context.Background(), "alter table idem."+from+" rename to "+to); err != nil {
			t.Error(err)
		}
	}
	gone := atEvent{p.watch, idem.EventOutcomeUnknown, func() { rename("records", "elsewhere") }}
	_, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(gone))
	var refused *pgconn.PgError
	if !errors.Is(err, idem.ErrOutcomeUnknown) || !errors.As(err, &refused) || refused.Code != "42P01" {
		t.Errorf("err = %v", err)
	}
	if diff := cmp.Diff([]string{"outcome_unknown", "unknown"}, p.watch.all()); diff != "" {
		t.Error(diff)
	}
	rename("elsewhere", "records")
	p.wantOnce("k")
}

func TestAnswerToCommitThatNeverComesIsResolvedWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, over(t, p.proxy.DSN()))
			ctx, cancel := context.WithCancel(t.Context())
			trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
			go func() { <-trap.Fired(); cancel() }()
			res, err := idemDo(ctx, pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch), withLimits(limit, 10*time.Millisecond, limit))
			if err != nil || res.Replayed {
				t.Errorf("%+v, %v", res, err)
			}
			if diff := cmp.Diff([]string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all()); diff != "" {
				t.Error(diff)
			}
			p.wantOnce("k")
			p.proxy.Cut(pgproxy.Reset)
		})
	}
}

func TestRejectionWhoseCommitIsNotAcknowledgedIsResolved(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	res, err := idemDo(t.Context(), pool, scope, "k", hashA, oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
		p.charge("k")(tx)
		return idem.Response{}, idem.Reject(idem.Response{Status: 402})
	}))
	if err != nil || !res.Rejected || res.Replayed || res.Status != 402 || p.runs.Load() != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if p.entries("k") != 0 || p.records("k") != 1 {
		t.Errorf("%d effects, %d records", p.entries("k"), p.records("k"))
	}
}

func TestConnectionCutBeforeCommitIsRunAgain(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]pgproxy.Point{
		"before COMMIT":             pgproxy.Before(pgproxy.IsCommit),
		"before the last trip":      pgproxy.BeforePipeline(pgproxy.IsCommit),
		"before the record is made": pgproxy.Before(pgproxy.Contains("-- name: Complete")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, p.proxy.DSN())
			trap := p.proxy.Arm(point, pgproxy.Reset)
			res, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch))
			if err != nil || res.Replayed {
				t.Fatalf("%+v, %v", res, err)
			}
			await(t, "the trap", trap.Fired())
			if diff := cmp.Diff([]string{"outcome_unknown", "resolved_rolled_back", "retried", "executed"}, p.watch.all()); diff != "" {
				t.Error(diff)
			}
			if n := p.runs.Load(); n != 2 {
				t.Errorf("fn ran %d times", n)
			}
			p.wantOnce("k")
		})
	}
}

func TestConnectionCutBeforeCommitIsARetryableErrorWhenNoRetriesAreLeft(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	p.proxy.Arm(pgproxy.Before(pgproxy.IsCommit), pgproxy.Reset)
	_, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithRetries(0))
	if !idem.Retryable(err) || errors.Is(err, idem.ErrOutcomeUnknown) {
		t.Errorf("err = %v", err)
	}
	p.wantNone("k")
}

func TestLostAnswerToTheClaimIsNotMistakenForAnotherCaller(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(isClaim, "INSERT 0 1"), pgproxy.Reset)
	res, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch), idem.WithWait(limit))
	if err != nil || res.Replayed || p.runs.Load() != 1 {
		t.Errorf("%+v, %v after %d runs", res, err, p.runs.Load())
	}
	await(t, "the trap", trap.Fired())
	p.wantOnce("k")
}

// Until the server notices that the holder has gone, the key is in progress. It is never executed
// twice and never lost.
func TestKeyOfAHolderBehindABlackHoleIsFreeWhenTheServerNotices(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool, other := pgtest.Open(t, p.proxy.DSN()), p.pool
	ctx, cancel := context.WithCancel(t.Context())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(isClaim, "INSERT 0 1"), pgproxy.BlackHole)
	done := make(chan error, 1)
	go func() {
		_, err := idemDo(ctx, pool, scope, "k", hashA, p.charge("k"))
		done <- err
	}()
	event := await(t, "the trap", trap.Fired())
	p.proxy.Refuse(pgproxy.Reset) // its CancelRequest does not get through either
	cancel()
	if err := await(t, "the call", done); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if _, err := idemDo(t.Context(), other, scope, "k", hashA, p.charge("k"), idem.WithWait(50*time.Millisecond)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("err = %v", err)
	}
	event.Conn.Cut(pgproxy.Reset)
	if _, err := idemDo(t.Context(), other, scope, "k", hashA, p.charge("k"), idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	p.wantOnce("k")
}

func TestConnectionCutInsideFnRollsBackAndFreesTheKey(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, p.proxy.DSN())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("insert into ledger")), pgproxy.Reset)
	_, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"))
	if err == nil || !idem.Retryable(err) {
		t.Errorf("err = %v", err)
	}
	await(t, "the trap", trap.Fired())
	if _, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	p.wantOnce("k")
}

// stride returns the distance in bytes between two cuts.
func stride() int64 {
	if testing.Short() {
		return 1 + rand.Int64N(120)
	}
	return 1 + rand.Int64N(40)
}

// The test tries every stride-th byte of the traffic, including the worst one.
func TestConnectionCutAtAnyByteKeepsEffectAndAnswerTogether(t *testing.T) {
	t.Parallel()
	for _, direction := range []pgproxy.Direction{pgproxy.ToServer, pgproxy.ToClient} {
		for name, over := range transports {
			t.Run(fmt.Sprint(direction, "/", name), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				address := over(t, p.proxy.DSN())
				warm := func() (*pgproxy.Conn, func(key string) (idem.Result, error)) {
					pool := pgtest.Open(t, address, maxConns(1))
					if _, err := idemDo(t.Context(), pool, scope, fmt.Sprint("warm", rand.Int64()), hashA, p.charge("warm")); err != nil {
						t.Fatal(err)
					}
					waitIdle(t, pool)
					conns := p.proxy.Conns()
					return conns[len(conns)-1], func(key string) (idem.Result, error) {
						defer pool.Close()
						return idemDo(t.Context(), pool, scope, key, hashA, p.charge(key), idem.WithWait(limit))
					}
				}
				conn, do := warm()
				before := conn.Bytes(direction)
				if _, err := do("whole"); err != nil {
					t.Fatal(err)
				}
				length := conn.Bytes(direction) - before
				for offset := int64(0); offset < length; offset += stride() {
					conn, do := warm()
					trap := p.proxy.Arm(pgproxy.AtByte(conn, direction, conn.Bytes(direction)+offset), pgproxy.Reset)
					key := fmt.Sprint("at ", offset)
					first, err := do(key)
					trap.Disarm()
					if n := p.entries(key); err == nil && n != 1 || err != nil && n != 0 {
						t.Errorf("%s of %d: %d effects, err = %v", key, length, n, err)
					}
					again, againErr := idemDo(t.Context(), p.pool, scope, key, hashA, p.charge(key), idem.WithWait(limit))
					if againErr != nil || err == nil && string(again.Body) != string(first.Body) {
						t.Errorf("%s: %q, then %q, %v", key, first.Body, again.Body, againErr)
					}
					p.wantOnce(key)
				}
			})
		}
	}
}

// An error means that nothing is committed, however close to the COMMIT the context ended.
func TestContextThatEndsAtAnyMomentLeavesTheTruth(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			contextEndsAtAnyMoment(t, p, pgtest.Open(t, over(t, p.proxy.DSN()), maxConns(8)))
		})
	}
}

func contextEndsAtAnyMoment(t *testing.T, p *proxied, pool *pgxpool.Pool) {
	p.proxy.SetLatency(200 * time.Microsecond)
	var committed, failed int
	var mu sync.Mutex
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			after := 5 * time.Millisecond // approaches the COMMIT from both sides
			for i := range 60 {
				key := fmt.Sprint(worker, "/", i)
				ctx, cancel := context.WithTimeout(t.Context(), after+rand.N(after/4))
				_, err := idemDo(ctx, pool, scope, key, hashA, p.charge(key))
				cancel()
				n := p.entries(key)
				if err == nil && n != 1 || err != nil && n != 0 {
					t.Errorf("%d effects, err = %v", n, err)
				}
				mu.Lock()
				if err == nil {
					committed++
					after = after * 9 / 10
				} else {
					failed++
					after = after * 6 / 5
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d committed, %d ended before", committed, failed)
	if committed == 0 || failed == 0 {
		t.Error("the moments were all on one side of the commit")
	}
}

func TestDeadConnectionsOfThePoolAreReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, over(t, p.proxy.DSN()), maxConns(4))
			for round := range 5 {
				key := fmt.Sprint("k", round)
				if _, err := idemDo(t.Context(), pool, scope, key, hashA, p.charge(key)); err != nil {
					t.Fatal(err)
				}
				p.proxy.Cut(pgproxy.Hangup) // all pooled connections are dead, and the pool does not know
				if res, err := idemDo(t.Context(), pool, scope, key, hashA, p.charge(key), idem.WithRetries(0)); err != nil || !res.Replayed {
					t.Errorf("%+v, %v", res, err)
				}
				p.wantOnce(key)
			}
		})
	}
}
