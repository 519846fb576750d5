package operation_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// ownerLocks counts the sessions that show the owner of the only operation.
const ownerLocks = `select count(*) from pg_locks l join idem.operations o on o.owner = l.objid::int8 where l.locktype = 'advisory'
	and l.classid = 1768187247 and l.objsubid = 2 and l.database = (select oid from pg_database where datname = current_database())`

// leased is a call in progress in a process that holds a lease, because the server refused it a session.
type leased struct {
	*blocked
	there   *shop
	full    atomic.Bool // no connection is to be had
	running context.Context
	answers <-chan answer
	owner   int
}

func newLeased(t *testing.T, s *shop, dsn string, withWorker bool) *leased {
	t.Helper()
	r := &leased{blocked: newBlocked(s, operation.Keyed(time.Hour))}
	r.there = &shop{t: t, pool: pgtest.Open(t, dsn, maxConns(4), refuseOnce(&r.full)), dsn: dsn, bank: s.bank}
	warmUp(t, r.there.pool)
	r.full.Store(true)
	if withWorker {
		r.there.work(t, r)
		eventually(t, "a lease", func() bool { return s.count(liveLeases) == 1 })
	}
	r.answers = r.call(t.Context(), r.there)
	r.running = await(t, "the call", r.begun)
	r.owner = s.count(`select owner from idem.operations`)
	if locks, leases := s.count(instanceLocks), s.count(liveLeases); locks != 0 || leases != 1 {
		t.Fatalf("%d locks and %d leases", locks, leases)
	}
	return r
}

// wantUndisturbed fails the test if another one has the operation, or the call was canceled.
func (r *leased) wantUndisturbed(t *testing.T, s *shop) {
	t.Helper()
	if err := r.running.Err(); err != nil {
		t.Errorf("the call was canceled: %v", err)
	}
	if n := s.count(`select owner from idem.operations where epoch = 1`); n != r.owner {
		t.Errorf("the operation was that of instance %d, and is that of %d", r.owner, n)
	}
}

// There is no pooler, and the process gets a session later. The session has the number of the process, so its operations go on undisturbed.
// When the session ends, another process claims the operation at once.
func TestLease_IsReplacedByASession(t *testing.T) {
	t.Parallel()
	for name, ownGuards := range map[string]int{"with a Worker": 1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			r := newLeased(t, s, s.dsn, ownGuards > 0)
			r.full.Store(false)
			eventually(t, "a session in place of the lease", func() bool { return s.count(ownerLocks) == 1 && s.count(liveLeases) == 0 })
			r.wantUndisturbed(t, s)
			eventually(t, "the process to be a guard", func() bool { return s.count(guards) == ownGuards })
			rival := newBlocked(s, operation.Keyed(time.Hour))
			s.aside().workRarely(t, rival)
			eventually(t, "the guards", func() bool { return s.count(guards) == ownGuards+1 })
			r.full.Store(true)
			s.count(`select count(pg_terminate_backend(l.pid)) from pg_locks l join idem.operations o on o.owner = l.objid::int8 where l.classid = 1768187247
				and l.database = (select oid from pg_database where datname = current_database())`)
			await(t, "the call of a guard", rival.begun)
			rival.release <- nil
			eventually(t, "the operation to end", s.completed(1))
			r.release <- nil
			if a := await(t, "the answer", r.answers); a.err != nil {
				t.Error(a.err)
			}
			s.wantBlocked()
		})
	}
}

// Wherever the connection is lost while the session takes the place of the lease, the process is seen all the time, and has a session
// in the end.
func TestLease_ConnectionLostWhileItIsReplaced(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]pgproxy.Point{
		"before the lock":             pgproxy.Before(pgproxy.Contains("AppearInSession")),
		"behind the lock":             pgproxy.AfterAnswer(pgproxy.Contains("AppearInSession")),
		"before the end of the lease": pgproxy.Before(pgproxy.Contains("EndLease")),
		"behind the end of the lease": pgproxy.AfterAnswer(pgproxy.Contains("EndLease")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			proxy := pgtest.Proxy(t, s.dsn)
			r := newLeased(t, s, proxy.DSN(), false)
			rival := newBlocked(s, operation.Keyed(time.Hour))
			s.aside().work(t, rival)
			trap := proxy.Arm(point, pgproxy.Reset)
			r.full.Store(false)
			await(t, "the loss", trap.Fired())
			eventually(t, "a session", func() bool { return s.count(ownerLocks) == 1 })
			r.wantUndisturbed(t, s)
			r.release <- nil
			if a := await(t, "the answer", r.answers); a.err != nil {
				t.Error(a.err)
			}
			if n := rival.calls.Load(); n != 0 {
				t.Errorf("another process has made %d calls", n)
			}
			s.wantBlocked()
		})
	}
}

// A process may not be refused all its sessions for good by a server that starts.
func TestPresence_ReturnsAfterAServerRestart(t *testing.T) {
	t.Parallel()
	const processes = 3
	server := ownServer(t)
	s := shopOn(t, server.DSN())
	d := s.checkout()
	var refusals [processes]atomic.Int64
	for n := range refusals {
		s.aside(maxConns(2), func(c *pgxpool.Config) {
			dial := c.ConnConfig.DialFunc
			c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err != nil {
					refusals[n].Add(1)
				}
				return conn, err
			}
		}).work(t, d)
	}
	eventually(t, "all processes and two guards", func() bool { return s.count(presences) == processes && s.count(guards) == 2 })
	server.Kill()
	await(t, "the end of the server", server.Done())
	for n := range refusals {
		eventually(t, "a process to notice", func() bool { return refusals[n].Load() > 3 })
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := shopOn(t, server.DSN())
	eventually(t, "all processes and two guards again", func() bool {
		return back.count(presences) == processes && back.count(guards) == 2 && back.count(liveLeases) == 0
	})
}

// A pooler in front of the server is known by the first connection, and asked no more.
func TestLease_IsRenewedBehindAPooler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var dials atomic.Int64
	behind := s.aside(behindPooler, maxConns(4), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
	})
	warmUp(t, behind.pool)
	b := newBlocked(s, operation.Keyed(time.Hour))
	behind.work(t, b)
	eventually(t, "a lease", func() bool { return s.count(liveLeases) == 1 })
	dialled := dials.Load()
	answers := b.call(t.Context(), behind)
	await(t, "the call", b.begun)
	until := s.text(`select expires_at::text from idem.leases`)
	for range 2 {
		eventually(t, "a renewal", func() bool { return s.text(`select expires_at::text from idem.leases`) != until })
		until = s.text(`select expires_at::text from idem.leases`)
	}
	if n := dials.Load(); n != dialled {
		t.Errorf("it has asked %d times for a session", n-dialled)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Error(a.err)
	}
	s.wantBlocked()
}
