package outbox_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

const (
	lanesByLease   = `select count(*) from idem.relays r join idem.leases e using (instance) where e.expires_at > clock_timestamp()`
	lanesBySession = `select count(*) from idem.relays r join pg_locks l on l.objid::int8::int4 = r.instance where l.locktype = 'advisory' and l.granted
		and l.objsubid = 2 and l.classid = 1768187247::oid and l.database = (select oid from pg_database where datname = current_database())`
)

// room controls whether a server accepts further connections of a pool.
type room struct {
	full  atomic.Bool
	dials atomic.Int64
}

func (r *room) door(c *pgxpool.Config) {
	c.MaxConns = 4
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		r.dials.Add(1)
		if r.full.Load() {
			return nil, errors.New("the server has no room")
		}
		return dial(ctx, network, addr)
	}
}

// withLease runs a relay with a lease: the server refuses a session, but the pool has its
// connections.
func withLease(t *testing.T, o *database, dsn string, publisher outbox.Publisher, configure ...func(*pgxpool.Config)) *room {
	t.Helper()
	r := &room{}
	there := &database{t: t, dsn: dsn, pool: pgtest.Open(t, dsn, append(configure, r.door)...)}
	var warm []*pgxpool.Conn
	for range there.pool.Config().MaxConns {
		conn, err := there.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		warm = append(warm, conn)
	}
	for _, conn := range warm {
		conn.Release()
	}
	r.full.Store(true)
	there.relay(publisher, swift())
	eventually(t, "a lease", func() bool { return o.count(lanesByLease) == 16 })
	return r
}

// There is no pooler, and a session becomes possible later. It has the same instance, so no other
// process publishes the messages of the call in progress.
func TestOwnership_SessionReplacesTheLease(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	hold := newGate()
	r := withLease(t, o, o.dsn, hold)
	instance := o.count(`select min(instance) from idem.relays`)
	o.add(message("a", "1"))
	await(t, "a call", hold.entered)
	other := &broker{}
	o.relay(other, swift())
	r.full.Store(false)
	n := 0 // one statement reads all, because a slow database may interrupt the relay at any moment
	eventually(t, "a session in place of the lease", func() bool {
		n = o.count(`select case when (` + lanesBySession + `) = 16 and (` + lanesByLease + `) = 0 then (select min(instance) from idem.relays) else -1 end`)
		return n >= 0
	})
	if n != instance {
		t.Errorf("the relay was instance %d, and is %d", instance, n)
	}
	close(hold.open)
	o.empty()
	if hold.number() != 1 || other.number() != 0 {
		t.Errorf("it was published %d times, and by another relay %d times", hold.number(), other.number())
	}
	r.full.Store(true)
	o.endSessions()
	o.add(message("a", "2"))
	o.empty()
}

// A process that was frozen after renewing its lease may have lost its lanes by the time it has the
// lock.
func TestOwnership_LeavesLanesOfAnotherProcess(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	stolen := make(chan error, 1)
	var armed atomic.Bool
	freeze := func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error {
			if armed.CompareAndSwap(true, false) {
				const another = `with gone as (update idem.leases set expires_at = clock_timestamp()),
					come as (insert into idem.leases values (1000000, clock_timestamp() + interval '1 hour'))
					update idem.relays set instance = 1000000`
				_, err := o.pool.Exec(ctx, another)
				stolen <- err
			}
			return nil
		}
	}
	var looks atomic.Int64
	proxy := pgtest.Proxy(t, o.dsn)
	sees := pgproxy.Contains("SeeLanes")
	defer proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && sees(e.Statement) {
			looks.Add(1)
		}
	})()
	r := withLease(t, o, proxy.DSN(), b, freeze)
	before := looks.Load()
	armed.Store(true)
	r.full.Store(false)
	if err := await(t, "the loss of the lanes", stolen); err != nil {
		t.Fatal(err)
	}
	o.add(message("a", "1"))
	eventually(t, "two looks", func() bool { return looks.Load() >= before+2 || b.number() > 0 })
	if n := b.number(); n > 0 {
		t.Error("it was published although another process has the lanes")
	}
	o.exec(`delete from idem.leases where instance = 1000000`)
	o.empty()
}
