package operation_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// blocked is an operation whose call blocks until the test releases it.
type blocked struct {
	*operation.Definition[string]
	calls   atomic.Int64
	begun   chan context.Context
	release chan error
}

func newBlocked(s *shop, policy operation.Policy) *blocked {
	b := &blocked{begun: make(chan context.Context, 8), release: make(chan error, 8)}
	b.Definition = operation.Define("blocked", b.function(s, policy))
	return b
}

func (b *blocked) function(s *shop, policy operation.Policy) func(op *operation.Op, _ string) (idem.Response, error) {
	return func(op *operation.Op, _ string) (idem.Response, error) {
		err := localStep(op, "before")
		if err == nil {
			_, err = operation.Call(op, "call", policy, func(ctx context.Context, key string) (string, error) {
				b.calls.Add(1)
				b.begun <- ctx
				if err := <-b.release; err != nil {
					return "", err
				}
				return s.bank.charge(ctx, key)
			})
		}
		return created, first(err, localStep(op, "after"))
	}
}

func (s *shop) wantBlocked() {
	s.t.Helper()
	s.wantDid("before after")
	if n, _ := s.bank.keys(); n != 1 {
		s.t.Errorf("the bank was charged under %d keys", n)
	}
}

func TestDo_InProgressForOtherCalls(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	elsewhere := shopOn(t, s.dsn) // as another process would see it
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := s.goDo(t.Context(), b.Definition)
	await(t, "the call", b.begun)
	for _, pool := range []*pgxpool.Pool{s.pool, elsewhere.pool} {
		inProgress := want(t, idem.ErrInProgress)
		inProgress(b.Do(t.Context(), pool, scope, "k", hashA, "", idem.WithWait(0)))
		if _, err := b.Do(t.Context(), pool, scope, "k", hashB, "", idem.WithWait(0)); !errors.Is(err, idem.ErrMismatch) && !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("an operation with another hash: %v", err)
		}
		inProgress(idem.Do(t.Context(), pool, scope, "k", hashA, nothing, idem.WithWait(0)))
		inProgress(idem.Do(t.Context(), pool, scope, "k", hashA, nothing, idem.WithWait(10*time.Millisecond), idem.WithReplayLikely()))
		tx, err := pool.Begin(t.Context())
		must(t, err)
		inProgress(idem.DoTx(t.Context(), tx, scope, "k", hashA, nothing))
		want(t, idem.ErrMismatch)(idem.DoTx(t.Context(), tx, scope, "k", hashB, nothing))
		must(t, tx.Rollback(t.Context()))
	}
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateProcessing || entry.ExecutionID == "" || !entry.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", entry, err)
	}
	waiting := elsewhere.goDo(t.Context(), b.Definition, idem.WithWait(limit))
	b.release <- nil
	first, second := await(t, "the first answer", answers), await(t, "the second answer", waiting)
	if first.err != nil || second.err != nil || first.Replayed || !second.Replayed {
		t.Errorf("%+v, %+v", first, second)
	}
	s.wantBlocked()
}

func nothing(pgx.Tx) (idem.Response, error) { return created, nil }

// A process that has lost the epoch commits nothing. Its caller gets the answer of the process that
// has the operation.
func TestFence_ZombieCommitsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := s.goDo(t.Context(), b.Definition, idem.WithWait(limit))
	await(t, "the call", b.begun)
	const steal = `update idem.operations set epoch = epoch + 1, owner = null, wake_at = clock_timestamp() + interval '1 hour'`
	s.exec(steal)
	b.release <- nil // the zombie goes on to its Tx, and to a COMMIT that is refused
	eventually(t, "the zombie to be done", func() bool { n, _ := s.bank.keys(); return n == 1 && s.pool.Stat().AcquiredConns() == 0 })
	if did := s.did(); len(did) != 1 {
		t.Errorf("%v is committed", did)
	}
	select {
	case a := <-answers:
		t.Fatalf("the zombie's caller got %+v", a)
	default:
	}
	s.exec(`update idem.operations set wake_at = clock_timestamp()`)
	b.release <- nil
	must(t, await(t, "the answer", answers).err)
	s.wantBlocked()
}

// The outcome of a call is recorded although its caller has left, and the call is not made again.
func TestCall_OutcomeIsKeptWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Once)
	ctx, leave := context.WithCancel(t.Context())
	answers := s.goDo(ctx, b.Definition)
	await(t, "the call", b.begun)
	leave()
	b.release <- nil
	if a := await(t, "the caller", answers); !errors.Is(a.err, context.Canceled) {
		t.Errorf("the caller got %v", a.err)
	}
	want(t, nil)(b.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	if n := b.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	s.wantBlocked()
}

const presences = `select count(*) from pg_stat_activity where application_name = 'idem presence' and datname = current_database()`

// A session ends and its process lives, as after a failover. The process stops its operations, and
// comes back as a new instance.
func TestPresence_LostComesBackAsANewInstance(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := s.goDo(t.Context(), b.Definition)
	running := await(t, "the call", b.begun)
	s.wantCount(1, presences)
	first := s.count(`select owner from idem.operations`)
	s.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'idem presence' and datname = current_database()`)
	await(t, "the end of the call's context", running.Done())
	b.release <- errors.New("canceled")
	await(t, "the second call", b.begun)
	if second := s.count(`select owner from idem.operations`); second == first || s.count(presences) != 1 {
		t.Errorf("the process was instance %d, and is %d", first, second)
	}
	b.release <- nil
	must(t, await(t, "the answer", answers).err)
	s.wantBlocked()
}

// pooled is a connection as a pooler gives it: the server reports another process number than the
// client got.
type pooled struct {
	net.Conn
	told bool
}

func (c *pooled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], []byte("K\x00\x00\x00\x0c")); i >= 0 && !c.told {
		c.told = true
		b[i+5] ^= 0x7f
	}
	return n, err
}

func behindPooler(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &pooled{Conn: conn}, err
	}
}

// Behind a pooler a session has no owner, and a lock on it would outlive the process: there is a
// lease instead.
func TestLease_BehindAPooler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	behind := shopOn(t, s.dsn, behindPooler)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := behind.goDo(t.Context(), b.Definition)
	await(t, "the call", b.begun)
	s.wantCount(0, `select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and database = (select oid from pg_database where datname = current_database())`)
	s.wantCount(1, `select count(*) from idem.leases l join idem.operations o on o.owner = l.instance where l.expires_at > clock_timestamp()`)
	want(t, idem.ErrInProgress)(s.do(b.Definition, idem.WithWait(0))) // the lease counts
	s.exec(`update idem.leases set expires_at = clock_timestamp()`)
	b.release <- nil
	b.release <- nil
	want(t, nil)(s.do(b.Definition, idem.WithWait(limit))) // an expired lease does not
	must(t, await(t, "the first caller", answers).err)
	s.wantBlocked()
}

// ownerLocks counts the sessions that show the owner of the only operation.
const ownerLocks = `select count(*) from pg_locks l join idem.operations o on o.owner = l.objid::int8 where l.locktype = 'advisory'
	and l.classid = 1768187247 and l.objsubid = 2 and l.database = (select oid from pg_database where datname = current_database())`

// A server refuses a session to a process without a pooler, so the process has a lease. Later it
// gets a session under the same number: its operations continue, and its Worker becomes a guard.
func TestLease_IsReplacedByASession(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	var full atomic.Bool // no connection is to be had
	there := s.aside(maxConns(4), refuseOnce(&full))
	warmUp(t, there.pool)
	full.Store(true)
	answers := there.goDo(t.Context(), b.Definition)
	running := await(t, "the call", b.begun)
	owner := s.count(`select owner from idem.operations`)
	s.wantCount(0, instanceLocks)
	s.wantCount(1, liveLeases)
	there.workRarely(t, b)
	full.Store(false)
	eventually(t, "a session in place of the lease", func() bool { return s.count(ownerLocks) == 1 && s.count(liveLeases) == 0 })
	if n := s.count(`select owner from idem.operations where epoch = 1`); n != owner || running.Err() != nil {
		t.Errorf("the operation was that of instance %d, and is that of %d; its call was canceled: %v", owner, n, running.Err())
	}
	eventually(t, "the process to be a guard", func() bool { return s.count(guards) == 1 })
	b.release <- nil
	must(t, await(t, "the answer", answers).err)
	s.wantBlocked()
}

const (
	instanceLocks = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1768187247 and objsubid = 2
		and database = (select oid from pg_database where datname = current_database())`
	liveLeases = `select count(*) from idem.leases where expires_at > clock_timestamp()`
)

// Behind a pooler no client has a session of its own, so processes have leases. The operation of a
// killed process is claimed after its lease is over.
func TestPgBouncer_KilledProcessIsFollowedAfterItsLease(t *testing.T) {
	t.Parallel()
	forEachPoint(t, []string{"refunded"}, func(t *testing.T, s *shop, point, in string) {
		behind := &shop{t: t, dsn: pgtest.PgBouncer(t, s.dsn) + "&default_query_exec_mode=exec", bank: s.bank}
		behind.pool = pgtest.Open(t, behind.dsn)
		v := newVictim(t, behind, point, in)
		s.wantCount(0, instanceLocks)
		s.wantCount(1, liveLeases)
		v.kill()
		d := pointed(behind.pool, func(string) {})
		want(t, idem.ErrInProgress)(d.Do(t.Context(), behind.pool, scope, "k", hashA, in, idem.WithWait(0))) // the lease counts
		s.exec(`update idem.leases set expires_at = clock_timestamp()`)
		behind.work(t, d)
		eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.operations where ended_at is not null`) == 1 })
		s.wantBooks(in)
	})
}

// The first operations of a process hold a connection each when they adopt an instance. They need
// no second one.
func TestPresence_NeedsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	const size = 4
	for _, where := range []string{"behind PgBouncer", "where no further session is to be had"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			dsn := s.dsn
			if where == "behind PgBouncer" {
				dsn = pgtest.PgBouncer(t, s.dsn) + "&default_query_exec_mode=exec"
			}
			var full atomic.Bool
			crowded := &shop{t: t, pool: pgtest.Open(t, dsn, maxConns(size), refuseOnce(&full))}
			warmUp(t, crowded.pool)
			full.Store(where == "where no further session is to be had")
			var begun sync.WaitGroup
			begun.Add(int(size))
			var runs atomic.Int32
			d := operation.Define("first", func(op *operation.Op, key string) (idem.Response, error) {
				_, err := operation.Tx(op, "before", func(tx pgx.Tx) (string, error) {
					if runs.Add(1) <= size {
						begun.Done()
					}
					begun.Wait() // until every operation has a connection
					return write("before " + key)(tx)
				})
				if err == nil {
					_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge)
				}
				return created, err
			})
			crowded.doAll(t, d, size)
			if n := runs.Load(); n != size {
				t.Errorf("%d operations were begun %d times", size, n)
			}
		})
	}
}

// refuseOnce makes a pool refuse new connections once full is set.
func refuseOnce(full *atomic.Bool) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if full.Load() {
				return nil, errors.New("the server has no room")
			}
			return dial(ctx, network, addr)
		}
	}
}

// warmUp opens all connections of the pool.
func warmUp(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		must(t, err)
		defer conn.Release()
	}
}
