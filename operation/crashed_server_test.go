package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/operation"
)

// asynchronous returns a server with synchronous_commit off, and a shop on it. Commits reach the disk late.
func asynchronous(t *testing.T) (*pgserver.Server, *shop) {
	t.Helper()
	server := ownServer(t, "wal_writer_delay=10s", "synchronous_commit=off")
	s := shopOn(t, server.DSN())
	s.flush()
	return server, s
}

// flush writes all commits to the disk.
func (s *shop) flush() {
	if _, err := s.pool.Exec(s.t.Context(), `checkpoint`); err != nil {
		s.t.Fatal(err)
	}
}

// A server with synchronous_commit off crashes during a call. The call is recorded as begun, by the first commit, a later one, or the
// takeover.
func TestCall_SurvivesAnAsynchronousServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  operation.Policy
		started bool // in a transaction of the program's
		later   bool // the call is behind another one
		parks   bool
	}{
		"keyed":            {policy: operation.Keyed(time.Hour)},
		"keyed, the later": {policy: operation.Keyed(time.Hour), later: true},
		"keyed, started":   {policy: operation.Keyed(time.Hour), started: true},
		"once":             {policy: operation.Once, parks: true},
		"once, started":    {policy: operation.Once, started: true, parks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, s := asynchronous(t)
			b := newBlocked(s, c.policy)
			keys := make(chan string, 8)
			d := operation.Define("crashed", func(op *operation.Op, _ string) (idem.Response, error) {
				if err := localStep(op, "before"); err != nil {
					return idem.Response{}, err
				}
				if c.later {
					if _, err := operation.Call(op, "first", c.policy, func(context.Context, string) (string, error) { return "", nil }); err != nil {
						return idem.Response{}, err
					}
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
			told := make(chan error, 1)
			if c.started {
				if _, err := s.start(d, "k", hashA, true); err != nil {
					t.Fatal(err)
				}
			}
			go func() {
				_, err := d.Do(ctx, s.pool, scope, "k", hashA, "")
				told <- err
			}()
			await(t, "the call", b.begun)
			first := <-keys
			server.Kill()
			await(t, "the end of the server", server.Done())
			leave()
			b.release <- errors.New("the server is away")
			await(t, "the caller", told)
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s = shopOn(t, server.DSN())
			if n := s.count(`select count(*) from idem.records r join idem.operations o on o.id = r.execution_id where o.step = 'call'`); n != 1 {
				t.Fatalf("%d operations are recorded with their call", n)
			}
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

// A server with synchronous_commit off crashes behind Signal, Cancel or Resolve. What they have reported is recorded.
func TestOperator_SurvivesAnAsynchronousServer(t *testing.T) {
	t.Parallel()
	server, s := asynchronous(t)
	d := operation.Define("told", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	for name, c := range map[string]struct {
		act  func(s *shop, id string) error
		want string // what it leaves
	}{
		"signal": {
			func(s *shop, id string) error { return operation.Signal(s.t.Context(), s.pool, id, "paid", 1) },
			`select count(*) from idem.signals where operation_id = $1`,
		},
		"signal in a transaction": {
			func(s *shop, id string) error {
				return pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error { return operation.Signal(s.t.Context(), tx, id, "paid", 1) })
			},
			`select count(*) from idem.signals where operation_id = $1`,
		},
		"cancel": {
			func(s *shop, id string) error { return operation.Cancel(s.t.Context(), s.pool, id) },
			`select count(*) from idem.operations where id = $1 and canceled`,
		},
		"resolve": {
			func(s *shop, id string) error {
				if _, err := s.pool.Exec(s.t.Context(), `update idem.operations set state = 'parked', reason = 'call_in_doubt', reason_step = 'charge', kind = 'call', seq = 1, step = 'charge' where id = $1`, id); err != nil {
					return err
				}
				s.flush()
				return operation.Resolve(s.t.Context(), s.pool, id, operation.Happened(""))
			},
			`select count(*) from idem.steps where operation_id = $1 and outcome = 'resolved'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := s.start(d, name, hashA, true)
			if err != nil {
				t.Fatal(err)
			}
			s.flush()
			if err := c.act(s, id); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			await(t, "the end of the server", server.Done())
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.pool.Reset()
			if n := s.count(c.want, id); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
	}
}
