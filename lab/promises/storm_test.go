package promises_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

var stormKeys = flag.Int("storm", 25, "keys of TestStormOnTheWireLeavesOneEffectOfEachKey, in each of its nine ways")

// strike disturbs a connection: it cuts it at a later byte or at once, or freezes it for a moment.
func strike(proxy *pgproxy.Proxy) {
	conns := proxy.Conns()
	if len(conns) == 0 {
		return
	}
	conn, how, dir := conns[rand.IntN(len(conns))], pgproxy.Reset, pgproxy.ToServer
	if rand.IntN(2) == 0 {
		how = pgproxy.Hangup
	}
	if rand.IntN(2) == 0 {
		dir = pgproxy.ToClient
	}
	switch rand.IntN(5) {
	case 0:
		conn.Cut(how)
	case 1:
		conn.Freeze(dir)
		time.AfterFunc(rand.N(20*time.Millisecond), func() { conn.Resume(dir) })
	default:
		proxy.Arm(pgproxy.AtByte(conn, dir, conn.Bytes(dir)+1+rand.Int64N(900)), how)
	}
}

// logical is one logical call, which is repeated until it has an answer.
type logical struct {
	result   idem.Result
	attempts int
	unknown  bool // an attempt had an unknown outcome; it may have committed, or commit later
}

func (p *proxied) insist(pool *pgxpool.Pool, key string, alone bool) (call logical) {
	for {
		patience := limit
		if rand.IntN(6) == 0 {
			patience = rand.N(20 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var err error
		call.attempts++
		if rand.IntN(2) == 0 {
			strike(p.proxy)
		}
		call.result, err = idemDo(ctx, pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			if rand.IntN(2) == 0 {
				strike(p.proxy)
			}
			return p.charge(key)(tx)
		})
		cancel()
		if err == nil {
			return call
		}
		call.unknown = call.unknown || errors.Is(err, idem.ErrOutcomeUnknown)
		if alone && !call.unknown && p.entries(key) > 0 {
			p.t.Errorf("%s: an error that leaves nothing open, and an effect: %v", key, err)
		}
		if errors.Is(err, idem.ErrMismatch) || call.attempts > 10_000 {
			p.t.Errorf("%s: %v, after %d attempts", key, err, call.attempts)
			return call
		}
	}
}

// Connections are cut at random bytes, hang up and freeze, on every transport and in every query
// mode. Callers cancel their calls.
func TestStormOnTheWireLeavesOneEffectOfEachKey(t *testing.T) {
	t.Parallel()
	for name, over := range transports {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(fmt.Sprint(name, "/", mode), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t)
				pool := pgtest.Open(t, over(t, p.proxy.DSN()), maxConns(6), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				var attempts, unknown atomic.Int64
				room := make(chan struct{}, 8)
				var callers sync.WaitGroup
				for n := range *stormKeys {
					key, crowd := fmt.Sprint("key ", n), 1+2*(n%2)
					calls := make([]logical, crowd)
					callers.Go(func() {
						room <- struct{}{}
						defer func() { <-room }()
						var together sync.WaitGroup
						for i := range calls {
							together.Go(func() { calls[i] = p.insist(pool, key, crowd == 1) })
						}
						together.Wait()
						first := calls[0].result.Response
						for _, c := range calls {
							if diff := cmp.Diff(first, c.result.Response); diff != "" {
								t.Errorf("%s: two answers:\n%s", key, diff)
							}
							attempts.Add(int64(c.attempts))
							if c.unknown {
								unknown.Add(1)
							}
						}
						p.wantOnce(key)
					})
				}
				callers.Wait()
				t.Logf("%d calls on %d keys, %d of unknown outcome on the way", attempts.Load(), *stormKeys, unknown.Load())
				p.wantHealthy()
			})
		}
	}
}
