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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// proxied is a ledger with a direct connection, and a proxy to the same database that breaks
// connections.
type proxied struct {
	*ledger
	proxy   *pgproxy.Proxy
	through *pgxpool.Pool // through the proxy
	watch   *watch
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	l := newLedger(t)
	proxy := pgtest.Proxy(t, l.pool.Config().ConnString())
	return &proxied{l, proxy, pgtest.Open(t, proxy.DSN()), newWatch()}
}

// transports are the ways to connect to a server. Deadlines, hangups and resets behave differently
// on a TLS connection.
var transports = map[string]func(t testing.TB, dsn string) string{
	"plain": func(_ testing.TB, dsn string) string { return dsn },
	"TLS":   pgtest.TLS,
}

var isClaim = pgproxy.Contains("-- name: Claim")

func TestDo_LostCommitAcknowledgementIsResolved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		how     pgproxy.Action
		over    string
		end     error
		outcome string
		effects int
	}{
		"reset":          {how: pgproxy.Reset, over: "plain", outcome: "executed", effects: 1},
		"hangup":         {how: pgproxy.Hangup, over: "plain", outcome: "executed", effects: 1},
		"reset of TLS":   {how: pgproxy.Reset, over: "TLS", outcome: "executed", effects: 1},
		"hangup of TLS":  {how: pgproxy.Hangup, over: "TLS", outcome: "executed", effects: 1},
		"of a rejection": {how: pgproxy.Reset, over: "plain", outcome: "rejected", end: idem.Reject(ok)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, transports[test.over](t, p.proxy.DSN()))
			trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), test.how)
			first, err := idemDo(t.Context(), pool, scope, "k", hashA, p.ending("k", ok, test.end), idem.WithObserver(p.watch), patient)
			noError(t, err)
			await(t, "the trap", trap.Fired())
			if first.Replayed || first.Rejected != (test.end != nil) || p.runs.Load() != 1 {
				t.Errorf("%+v after %d runs", first, p.runs.Load())
			}
			wantSame(t, []string{"outcome_unknown", "resolved_committed", test.outcome}, p.watch.all())
			p.wantStored("k", test.effects, 1)
			wantReplay(t, name, first)(idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k")))
		})
	}
}

// TLS can read the end of a connection together with the answer to a statement of fn. The socket
// then reports nothing more, and a COMMIT that waited for the socket would wait until its context
// ends.
func TestDo_NoticesAConnectionEndThatTLSHasReadAhead(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	pool := pgtest.Open(t, pgtest.TLSClosedAfter(t, p.proxy.DSN(), "the last answer"), maxConns(1))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	taken := false
	_, err := idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		resp, err := p.charge("k")(tx)
		if err == nil && !taken {
			taken = true
			_, err = tx.Exec(context.Background(), "select 'the last ' || 'answer'")
		}
		return resp, err
	}, idem.WithObserver(p.watch), patient)
	if err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	wantSame(t, []string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all())
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
// later. If it refuses the query, the outcome stays unknown.
func TestDo_OutcomeOfACommitIsAskedUntilThereIsAnAnswer(t *testing.T) {
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
	rename := func(from, to string) { execute(t, p.pool, "alter table idem."+from+" rename to "+to) }
	for key, test := range map[string]struct {
		do   func()
		code string
		want []string
	}{
		"unavailable": {func() { refused.Store(0) }, "", []string{"outcome_unknown", "resolved_committed", "executed"}},
		"refused":     {func() { rename("records", "elsewhere") }, "42P01", []string{"outcome_unknown", "unknown"}},
	} {
		p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
		w := newWatch()
		away := atEvent{w, idem.EventOutcomeUnknown, test.do}
		_, err := idemDo(t.Context(), pool, scope, key, hashA, p.charge(key), idem.WithObserver(away), patient)
		if test.code == "" && err != nil || test.code != "" && (!errors.Is(err, idem.ErrOutcomeUnknown) || !txn.HasCode(err, test.code)) {
			t.Errorf("%s: %v after %d dials in vain", key, err, refused.Load())
		}
		wantSame(t, test.want, w.all())
		if key == "refused" {
			rename("elsewhere", "records")
		}
		p.wantOnce(key)
	}
}

func TestDo_SilentCommitIsResolvedWhenTheContextEnds(t *testing.T) {
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
			wantSame(t, []string{"outcome_unknown", "resolved_committed", "executed"}, p.watch.all())
			p.wantOnce("k")
			p.proxy.Cut(pgproxy.Reset)
		})
	}
}

func TestDo_RunsAgainIfCommitNeverArrives(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		point   pgproxy.Point
		retries int
	}{
		"before COMMIT":             {pgproxy.Before(pgproxy.IsCommit), 1},
		"before the last trip":      {pgproxy.BeforePipeline(pgproxy.IsCommit), 1},
		"before the record is made": {pgproxy.Before(pgproxy.Contains("-- name: Complete")), 1},
		"with no retry left":        {pgproxy.Before(pgproxy.IsCommit), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			trap := p.proxy.Arm(test.point, pgproxy.Reset)
			res, err := idemDo(t.Context(), p.through, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch), idem.WithRetries(test.retries), patient)
			await(t, "the trap", trap.Fired())
			if test.retries == 0 {
				if !idem.Retryable(err) || errors.Is(err, idem.ErrOutcomeUnknown) {
					t.Errorf("err = %v", err)
				}
				p.wantNone("k")
				return
			}
			if err != nil || res.Replayed || p.runs.Load() != 2 {
				t.Fatalf("%+v, %v after %d runs", res, err, p.runs.Load())
			}
			wantSame(t, []string{"outcome_unknown", "resolved_rolled_back", "retried", "executed"}, p.watch.all())
			p.wantOnce("k")
		})
	}
}

func TestDo_LostAnswerToTheClaimIsNotAnotherCaller(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	trap := p.proxy.Arm(pgproxy.AfterAnswer(isClaim, "INSERT 0 1"), pgproxy.Reset)
	res, err := idemDo(t.Context(), p.through, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch), idem.WithWait(limit))
	if err != nil || res.Replayed || p.runs.Load() != 1 {
		t.Errorf("%+v, %v after %d runs", res, err, p.runs.Load())
	}
	await(t, "the trap", trap.Fired())
	p.wantOnce("k")
}

// Until the server notices that the holder has gone, the key is in progress. It is never executed
// twice and never lost.
func TestDo_KeyOfALostHolderIsFreeOnceTheServerNotices(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	ctx, cancel := context.WithCancel(t.Context())
	trap := p.proxy.Arm(pgproxy.AfterAnswer(isClaim, "INSERT 0 1"), pgproxy.BlackHole)
	done := calling(ctx, p.through, "k", hashA, p.charge("k"))
	event := await(t, "the trap", trap.Fired())
	p.proxy.Refuse(pgproxy.Reset) // its CancelRequest does not get through either
	cancel()
	wantIs(t, await(t, "the call", done), context.Canceled)
	wantIs(t, errOf(idemDo(t.Context(), p.pool, scope, "k", hashA, p.charge("k"), idem.WithWait(50*time.Millisecond))), idem.ErrInProgress)
	event.Conn.Cut(pgproxy.Reset)
	p.wantFreeSoon(p.pool, "k")
}

func TestDo_CutInsideFnFreesTheKey(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("insert into ledger")), pgproxy.Reset)
	_, err := idemDo(t.Context(), p.through, scope, "k", hashA, p.charge("k"))
	if err == nil || !idem.Retryable(err) {
		t.Errorf("err = %v", err)
	}
	await(t, "the trap", trap.Fired())
	p.wantFreeSoon(p.through, "k")
}

// stride returns the distance in bytes between two cuts.
func stride() int64 {
	if testing.Short() {
		return 1 + rand.Int64N(120)
	}
	return 1 + rand.Int64N(40)
}

// The test tries every stride-th byte of the traffic, including the worst one.
func TestDo_CutAtAnyByteKeepsEffectAndResponseTogether(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		direction pgproxy.Direction
		over      string
	}{
		"to the server": {pgproxy.ToServer, "plain"}, "to the client": {pgproxy.ToClient, "plain"}, "to the client over TLS": {pgproxy.ToClient, "TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			address := transports[test.over](t, p.proxy.DSN())
			warm := func() (*pgproxy.Conn, func(key string) (idem.Result, error)) {
				pool := pgtest.Open(t, address, maxConns(1))
				noError(t, errOf(idemDo(t.Context(), pool, scope, fmt.Sprint("warm", rand.Int64()), hashA, p.charge("warm"))))
				waitIdle(t, pool)
				conns := p.proxy.Conns()
				return conns[len(conns)-1], func(key string) (idem.Result, error) {
					defer pool.Close()
					return idemDo(t.Context(), pool, scope, key, hashA, p.charge(key), idem.WithWait(limit), patient)
				}
			}
			conn, do := warm()
			before := conn.Bytes(test.direction)
			noError(t, errOf(do("whole")))
			length := conn.Bytes(test.direction) - before
			for offset := int64(0); offset < length; offset += stride() {
				conn, do := warm()
				trap := p.proxy.Arm(pgproxy.AtByte(conn, test.direction, conn.Bytes(test.direction)+offset), pgproxy.Reset)
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

// An error means that nothing is committed, however close to the COMMIT the context ended.
func TestDo_ContextEndingAtAnyMomentLeavesTheTruth(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			pool := pgtest.Open(t, over(t, p.proxy.DSN()), maxConns(8))
			p.proxy.SetLatency(200 * time.Microsecond)
			var committed, failed atomic.Int64
			storm(4, func(worker int) {
				after := 5 * time.Millisecond // approaches the COMMIT from both sides
				for i := range 40 {
					key := fmt.Sprint(worker, "/", i)
					ctx, cancel := context.WithTimeout(t.Context(), after+rand.N(after/4))
					_, err := idemDo(ctx, pool, scope, key, hashA, p.charge(key), patient)
					cancel()
					if n := p.entries(key); err == nil && n != 1 || err != nil && n != 0 {
						t.Errorf("%d effects, err = %v", n, err)
					}
					if err == nil {
						committed.Add(1)
						after = after * 9 / 10
					} else {
						failed.Add(1)
						after = after * 6 / 5
					}
				}
			})()
			if committed.Load() == 0 || failed.Load() == 0 {
				t.Errorf("the moments were all on one side of the commit: %d committed", committed.Load())
			}
		})
	}
}

// After a restart of the server every pooled connection is dead, those that calls have used and the
// others. No call fails because of that.
func TestDo_SkipsAllDeadConnectionsOfThePool(t *testing.T) {
	t.Parallel()
	const conns = 20
	for name, over := range transports {
		for _, warm := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", used by calls ", warm), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				pool := pgtest.Open(t, over(t, p.proxy.DSN()), maxConns(conns))
				var group, together sync.WaitGroup
				together.Add(conns)
				for i := range conns {
					group.Go(func() {
						if warm {
							_, err := idemDo(t.Context(), pool, scope, fmt.Sprint("warm", i), hashA, func(pgx.Tx) (idem.Response, error) {
								together.Done()
								together.Wait()
								return ok, nil
							})
							wantIs(t, err, nil)
							return
						}
						conn := must(pool.Acquire(t.Context()))
						together.Done()
						together.Wait()
						conn.Release()
					})
				}
				group.Wait()
				p.proxy.Cut(pgproxy.Hangup)
				wantIs(t, errOf(idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithRetries(0), idem.WithObserver(p.watch))), nil)
				if got := p.watch.all(); fmt.Sprint(got) != "[executed]" {
					t.Errorf("%v", got)
				}
				p.wantOnce("k")
			})
		}
	}
}
