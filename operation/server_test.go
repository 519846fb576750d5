package operation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/operation"
)

// asynchronous returns a shop on a server with synchronous_commit off and late flushes.
func asynchronous(t *testing.T) (*pgserver.Server, *shop) {
	t.Helper()
	server := ownServer(t, "wal_writer_delay=10s", "synchronous_commit=off")
	s := shopOn(t, server.DSN())
	s.flush()
	return server, s
}

// flush writes all commits to the disk.
func (s *shop) flush() { s.exec(`checkpoint`) }

// A server with synchronous_commit off crashes during a call. The call is recorded as begun, by the
// first commit, a later one, or the takeover.
func TestCall_SurvivesAnAsynchronousServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  operation.Policy
		started bool // in a transaction of the program's
		later   bool // the call is behind another one
		parks   bool
	}{
		"keyed, the later": {policy: operation.Keyed(time.Hour), later: true},
		"once, started":    {policy: operation.Once, started: true, parks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, s := asynchronous(t)
			b := newBlocked(s, c.policy)
			keys := make(chan string, 8)
			d := operation.Define("crashed", func(op *operation.Op, _ string) (idem.Response, error) {
				_ = localStep(op, "before")
				if c.later {
					_ = outsideStep(op, "first")
				}
				_, err := operation.Call(op, "call", c.policy, func(ctx context.Context, key string) (string, error) {
					keys <- key
					b.begun <- ctx
					return key, <-b.release
				})
				return created, err
			})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if c.started {
				s.startAll(d, "k")
			}
			told := s.goDo(ctx, d)
			await(t, "the call", b.begun)
			first := <-keys
			server.Kill()
			await(t, "the end of the server", server.Done())
			leave()
			b.release <- errors.New("the server is away")
			await(t, "the caller", told)
			must(t, server.Start(t.Context()))
			s = shopOn(t, server.DSN())
			s.wantCount(1, `select count(*) from idem.records r join idem.operations o on o.id = r.execution_id where o.step = 'call'`)
			b.release <- nil
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
			switch {
			case c.parks && !errors.Is(err, operation.ErrParked):
				t.Errorf("a call that is made once: %v", err)
			case !c.parks && err != nil:
				t.Error(err)
			case !c.parks:
				if again := <-keys; again != first {
					t.Error("it was called again under another key")
				}
			}
			if len(keys) > 0 {
				t.Errorf("%d further calls", len(keys))
			}
		})
	}
}

// A server with synchronous_commit off crashes after Signal, Cancel or Resolve has returned. Their
// effect is durable.
func TestOperator_SurvivesAnAsynchronousServer(t *testing.T) {
	t.Parallel()
	server, s := asynchronous(t)
	d := operation.Define("told", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	for name, c := range map[string]struct {
		act  act
		want string // what it leaves
	}{
		"signal in a transaction": {
			func(ctx context.Context, s *shop, id string) error {
				return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return operation.Signal(ctx, tx, id, "paid", 1) })
			},
			`select count(*) from idem.signals where operation_id = $1`,
		},
		"cancel": {cancelWith(), `select count(*) from idem.operations where id = $1 and canceled`},
		"resolve": {
			func(ctx context.Context, s *shop, id string) error {
				s.exec(`update idem.operations set state = 'parked', reason = 'call_in_doubt', reason_step = 'charge', kind = 'call', seq = 1, step = 'charge' where id = $1`, id)
				s.flush()
				return operation.Resolve(ctx, s.pool, id, operation.Happened(""))
			},
			`select count(*) from idem.steps where operation_id = $1 and outcome = 'resolved'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.startAll(d, name)[0]
			s.flush()
			must(t, c.act(t.Context(), s, id))
			server.Kill()
			await(t, "the end of the server", server.Done())
			must(t, server.Start(t.Context()))
			s.pool.Reset()
			s.wantCount(1, c.want, id)
		})
	}
}

// pair is a primary and its synchronous standby. Clients connect to the one that takes writes.
type pair struct {
	primary, standby *pgserver.Server
	port             atomic.Int64
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{primary: ownServer(t)}
	var err error
	if p.standby, err = p.primary.Standby(t.Context(), "second", pgserver.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.standby.Close() })
	p.port.Store(int64(p.primary.Port()))
	s := shopOn(t, p.primary.DSN())
	s.exec(`alter system set synchronous_standby_names = 'second'`)
	s.exec(`select pg_reload_conf()`)
	eventually(t, "the standby to be synchronous", func() bool { return s.count(`select count(*) from pg_stat_replication where sync_state = 'sync'`) == 1 })
	return p
}

// ownServer starts a server with the schema for one test.
func ownServer(t *testing.T, settings ...string) *pgserver.Server {
	t.Helper()
	server := pgtest.Server(t, settings...)
	must(t, schema.UpAt(t.Context(), server.DSN()))
	return server
}

// open returns a pool whose connections go to the primary.
func (p *pair) open(t *testing.T) *shop {
	t.Helper()
	return shopOn(t, p.primary.DSN(), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, fmt.Sprint("127.0.0.1:", p.port.Load()))
		}
	})
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	must(t, p.standby.Promote(t.Context()))
	p.port.Store(int64(p.standby.Port()))
}

// After a failover every process has lost its presence. A living process comes back as a new
// instance, while others count it as dead. One of them resumes from the last commit, and there is
// one outcome.
func TestDo_OutlivesAFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s, other := p.open(t), p.open(t)
	other.bank = s.bank
	calls := map[string]*blocked{}
	answers := map[string]<-chan answer{}
	for _, key := range []string{"alone", "raced"} { // by a Worker of another process, or not
		b := newBlocked(s, operation.Keyed(time.Hour))
		calls[key] = b
		b.Definition = operation.Define(key, b.function(s, operation.Keyed(time.Hour)))
		told := make(chan answer, 1)
		answers[key] = told
		go func() {
			res, err := b.Do(context.Background(), s.pool, scope, key, hashA, "", idem.WithWait(limit), idem.WithRetries(20))
			told <- answer{res, err}
		}()
		await(t, "the call", b.begun)
	}
	failed := time.Now()
	p.failOver(t)
	promoted := time.Now()
	for _, b := range calls {
		close(b.release) // the bank answers, whatever happens to the database
	}
	rival := newBlocked(other, operation.Keyed(time.Hour))
	rival.Definition = operation.Define("raced", rival.function(other, operation.Keyed(time.Hour)))
	close(rival.release)
	other.work(t, rival)
	for key, told := range answers {
		a := await(t, "the answer", told)
		for n := 0; a.err != nil && n < 20; n++ { // the call may have left it to the next process
			if !errors.Is(a.err, idem.ErrInProgress) && !idem.Retryable(a.err) {
				t.Fatal(key, a.err)
			}
			a.Result, a.err = calls[key].Do(t.Context(), s.pool, scope, key, hashA, "", idem.WithWait(limit))
		}
		if a.err != nil || a.Status != 201 {
			t.Errorf("%s: %+v, %v", key, a.Result, a.err)
		}
	}
	t.Logf("promoted %v after the primary was killed, and done %v later", promoted.Sub(failed), time.Since(promoted))
	if got := s.text(`select string_agg(step || ' ' || n, ', ' order by step) from (select step, count(*) n from done group by 1) counted`); got != "after 2, before 2" {
		t.Errorf("committed: %s", got)
	}
	if n, asked := s.bank.keys(); n != 2 {
		t.Errorf("the bank was charged under %d keys in %d requests", n, asked)
	}
	s.wantCount(2, `select count(*) from idem.operations where state = 'completed'`)
}
