package promises_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// While a server accepts connections and closes them at once, clients reconnect all the time. A
// call waits between its attempts, and makes as many as its retries allow.
func TestOutageIsMetWithFewConnectionsAndPauses(t *testing.T) {
	t.Parallel()
	const retries = 3
	for name, breaks := range map[string]func(*pgproxy.Proxy){
		"lost at the first statement": func(p *pgproxy.Proxy) { p.ArmEach(pgproxy.Before(pgproxy.Contains("")), pgproxy.Reset) },
		"lost when accepted":          func(p *pgproxy.Proxy) { p.Refuse(pgproxy.Reset) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			var made dials
			pool := pgtest.Open(t, p.proxy.DSN(), maxConns(200), made.on)
			breaks(p.proxy)
			_, err := idemDo(t.Context(), pool, scope, "k", hashA, p.charge("k"), idem.WithObserver(p.watch), idem.WithRetries(retries))
			if !idem.Retryable(err) {
				t.Errorf("err = %v", err)
			}
			// After a second or third connection, a run knows that the first was not just an old
			// connection of the pool. For each of them pgx may open another one for a
			// CancelRequest.
			const most = (retries + 1) * 3
			if made, all := pool.Stat().NewConnsCount(), len(made.all()); made > most || all > 2*most {
				t.Errorf("%d connections were had, and %d dialled", made, all)
			}
			if n := p.watch.count("retried"); n != retries {
				t.Errorf("%d pauses", n)
			}
			p.wantNone("k")
		})
	}
}

// useAll makes a call on every connection of a pool.
func useAll(t *testing.T, p *proxied, pool *pgxpool.Pool, conns int) {
	t.Helper()
	var group, inside sync.WaitGroup
	inside.Add(conns)
	for i := range conns {
		group.Go(func() {
			_, err := idemDo(t.Context(), pool, scope, fmt.Sprint("warm", i), hashA, func(tx pgx.Tx) (idem.Response, error) {
				inside.Done()
				inside.Wait()
				return ok, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// After a restart of the server every pooled connection is dead. No call fails because of that.
func TestAllDeadConnectionsOfAPoolAreSkippedAtNoCost(t *testing.T) {
	t.Parallel()
	const conns = 40
	p := newProxied(t)
	for name, warm := range map[string]bool{"used by calls before": true, "used by others alone": false} {
		pool := pgtest.Open(t, p.proxy.DSN(), maxConns(conns))
		var group sync.WaitGroup
		together := make(chan struct{})
		for range conns {
			group.Go(func() {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				<-together
				conn.Release()
			})
		}
		eventually(t, "all connections to be made", func() bool { return pool.Stat().AcquiredConns() == conns })
		close(together)
		group.Wait()
		if warm {
			useAll(t, p, pool, conns)
		}
		p.proxy.Cut(pgproxy.Hangup)
		w := newWatch()
		key := "after/" + name
		if _, err := idemDo(context.Background(), pool, scope, key, hashA, p.charge(key), idem.WithRetries(0), idem.WithObserver(w)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.all(); fmt.Sprint(got) != "[executed]" {
			t.Errorf("%s: %v", name, got)
		}
		p.wantOnce(key)
		pool.Close()
	}
}
