package operation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

const (
	instanceLocks = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1768187247 and objsubid = 2
		and database = (select oid from pg_database where datname = current_database())`
	liveLeases = `select count(*) from idem.leases where expires_at > clock_timestamp()`
)

// A pooler gives a session to no client for good, so that processes are seen by their leases: in life, and in death once the lease is over.
func TestPgBouncer_KilledProcessIsFollowedAfterItsLease(t *testing.T) {
	t.Parallel()
	forEachPoint(t, []string{"before the charge", "in confirm", "refunded"}, func(t *testing.T, s *shop, point, in string) {
		if in == "reject" && inputOf(point) != "reject" {
			return // as far as here they are the same
		}
		behind := &shop{t: t, dsn: pgtest.PgBouncer(t, s.dsn) + "&default_query_exec_mode=exec", bank: s.bank}
		behind.pool = pgtest.Open(t, behind.dsn)
		v := newVictim(t, behind, point, in)
		if locks, leases := s.count(instanceLocks), s.count(liveLeases); locks != 0 || leases != 1 {
			t.Fatalf("%d locks and %d leases", locks, leases)
		}
		v.kill()
		d := pointed(behind.pool, func(string) {})
		if _, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, in, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Fatalf("the lease does not count: %v", err)
		}
		if _, err := s.pool.Exec(t.Context(), `update idem.leases set expires_at = clock_timestamp()`); err != nil {
			t.Fatal(err)
		}
		behind.work(t, d)
		eventually(t, "the operation to end", func() bool {
			return s.count(`select count(*) from idem.operations where ended_at is not null`) == 1
		})
		s.wantBooks(in)
	})
}

func TestPgBouncer_EveryStepInEveryMode(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dsn := pgtest.PgBouncer(t, s.dsn)
	for i, mode := range pgtest.ModesBehindPgBouncer(t) {
		behind := shopOn(t, dsn+"&default_query_exec_mode=exec", func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		d := behind.trip(func(op *operation.Op) (idem.Response, error) {
			yes, err := operation.Await[bool](op, "approve", limit)
			if err != nil || yes {
				return idem.Response{}, errors.Join(err, errors.New("not as it was sent"))
			}
			return idem.Response{}, idem.Reject(declined)
		})
		key := fmt.Sprint("k", i)
		id, err := behind.start(d, key, hashA, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := operation.Signal(t.Context(), behind.pool, id, "approve", false); err != nil {
			t.Fatal(err)
		}
		if err := d.Resume(t.Context(), behind.pool, id); err != nil {
			t.Fatalf("mode %v: %v", mode, err)
		}
		res, err := d.Do(t.Context(), behind.pool, scope, key, hashA, "")
		if err != nil || !res.Rejected || res.Status != 402 {
			t.Errorf("mode %v: %+v, %v", mode, res, err)
		}
		if diff := cmp.Diff([]string{"order " + key, "flight", "refund", "cancel flight"}, s.did()[i*4:]); diff != "" {
			t.Errorf("mode %v (-want +committed):\n%s", mode, diff)
		}
		if n := s.count(instanceLocks); n != 0 {
			t.Errorf("mode %v: %d locks", mode, n)
		}
	}
}

// The first operations of a process hold a connection each when they first have to show themselves. They need no other one.
func TestPresence_NeedsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{1, 4} {
		for _, where := range []string{"directly", "behind PgBouncer", "where no further session is to be had"} {
			t.Run(fmt.Sprint("a pool of ", size, ", ", where), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				dsn := s.dsn
				if where == "behind PgBouncer" {
					dsn = pgtest.PgBouncer(t, s.dsn) + "&default_query_exec_mode=exec"
				}
				var full atomic.Bool
				pool := pgtest.Open(t, dsn, maxConns(size), refuseOnce(&full))
				warmUp(t, pool)
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
				errs := make(chan error, size)
				for i := range size {
					go func() {
						key := fmt.Sprint("k", i)
						_, err := d.Do(t.Context(), pool, scope, key, hashA, key)
						errs <- err
					}()
				}
				for range size {
					if err := await(t, "an operation to end", errs); err != nil {
						t.Error(err)
					}
				}
				if n := runs.Load(); n != size {
					t.Errorf("%d operations were begun %d times", size, n)
				}
			})
		}
	}
}

// refuseOnce has a pool that connects to nothing once full is set.
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

// warmUp has the pool connect as often as it may.
func warmUp(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}
