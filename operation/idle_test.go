package operation_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// fleet runs a Worker in each of so many processes, as others see them: each has a pool and a presence of its own.
func (s *shop) fleet(t *testing.T, n int, definitions ...operation.Runnable) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, n)
	for range n {
		pool := pgtest.Open(t, s.dsn, maxConns(2))
		go func() {
			ended <- operation.NewWorker(pool, operation.WorkerConfig{Drain: time.Second}, definitions...).Run(ctx)
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range n {
			if err := await(t, "a worker to end", ended); err != nil {
				t.Error(err)
			}
		}
	})
}

var idleProcesses = flag.Int("processes", 30, "how many processes with a Worker TestWorker_ManyIdleProcessesLookRarely has")

// Many processes that have nothing to do, and ten thousand operations that sleep, cost little more than a statement a second in
// all: two guards take turns to look, and the others look rarely.
func TestWorker_ManyIdleProcessesLookRarely(t *testing.T) {
	t.Parallel()
	const watched, enough = 5 * time.Second, 8
	processes := *idleProcesses
	s := newShop(t)
	s.sleepers(t, 10_000)
	proxy := pgtest.Proxy(t, s.dsn)
	d := operation.Define("sleeper", func(op *operation.Op, _ int) (idem.Response, error) { return created, op.Checkpoint() })
	s.through(proxy).fleet(t, processes, d)
	eventually(t, "all processes and two guards", func() bool { return s.count(presences) == processes && s.count(guards) == 2 })
	var statements atomic.Int64
	t.Cleanup(proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && e.Statement.SQL != "-- ping" { // which a pool sends on a connection that was idle
			statements.Add(1)
		}
	}))
	least := int64(math.MaxInt64)
	for try := 0; try < 5 && least > enough; try++ { // the first looks of all are in one of these
		statements.Store(0)
		time.Sleep(watched) // what is counted is statements by the second
		least = min(least, statements.Load())
	}
	t.Logf("%d statements in %v", least, watched)
	if least > enough {
		t.Errorf("%d idle processes have made %d statements in %v", processes, least, watched)
	}
}

// sleepers leaves operations that wait for a moment that is far away.
func (s *shop) sleepers(t *testing.T, n int) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), fmt.Sprintf(`
		insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, kind, step, seq, since, wake_at, tries, attempts)
		select gen_random_uuid(), '%s', 'sleeper '||n, '\x00', 'sleeper', 1, now(), 1, 'running', false, 'sleep', 'night', 1, now(), now() + interval '1 year', 0, 0
		from generate_series(1, %d) n`, scope, n))
	if err != nil {
		t.Fatal(err)
	}
}
