package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// workRarely runs a Worker that hardly ever looks by itself, until the test is over.
func (s *shop) workRarely(t *testing.T, definitions ...operation.Runnable) {
	t.Helper()
	config := operation.WorkerConfig{Poll: 24 * time.Hour, Drain: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operation.NewWorker(s.pool, config, definitions...).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await(t, "the worker to end", ended); err != nil {
			t.Error(err)
		}
	})
}

const guards = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1768187248 and objsubid = 2
	and database = (select oid from pg_database where datname = current_database())`

// A killed process is noticed by another one that runs a Worker, and not by its next look.
func TestGuard_NoticesADeadProcess(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	d := pointed(s.pool, func(string) {})
	s.workRarely(t, d)
	eventually(t, "a guard", func() bool { return s.count(guards) == 1 })
	v := newVictim(t, s, "charged", "book")
	v.kill()
	killed := time.Now()
	eventually(t, "the operation to end", s.completed(1))
	t.Logf("ended %v after the kill", time.Since(killed))
	s.wantBooks("book")
}

// There are two guards at most, however many Workers run, and one that ends leaves its place to another.
func TestGuard_TwoAtMost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout()
	var stops []context.CancelFunc
	ended := make(chan error, 3)
	for range 3 {
		there := shopOn(t, s.dsn)
		ctx, stop := context.WithCancel(t.Context())
		stops = append(stops, stop)
		go func() { ended <- operation.NewWorker(there.pool, operation.WorkerConfig{}, d).Run(ctx) }()
	}
	eventually(t, "two guards", func() bool { return s.count(guards) == 2 && s.count(presences) == 3 })
	stops[0]()
	stops[1]()
	for range 2 {
		if err := await(t, "a worker to end", ended); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the third to be a guard", func() bool { return s.count(guards) == 1 && s.count(presences) == 1 })
	stops[2]()
	if err := await(t, "the last worker to end", ended); err != nil {
		t.Error(err)
	}
}

// aside is the shop as another process sees it, with a pool and a presence of its own.
func (s *shop) aside(configure ...func(*pgxpool.Config)) *shop {
	s.t.Helper()
	return &shop{t: s.t, pool: pgtest.Open(s.t, s.dsn, configure...), dsn: s.dsn, bank: s.bank}
}

// startSome begins operations as a caller does that runs no Worker.
func (s *shop) startSome(t *testing.T, d *operation.Definition[string], n int) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for i := range n {
			if _, err := d.Start(t.Context(), tx, scope, fmt.Sprint("started ", i), hashA, ""); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A guard notifies the other processes of what it finds and has no room for. They claim it although they hardly ever poll.
func TestGuard_NotifiesProcessesWithRoom(t *testing.T) {
	t.Parallel()
	const processes = 8
	s := newShop(t)
	var together sync.WaitGroup
	together.Add(processes)
	d := operation.Define("together", func(op *operation.Op, _ string) (idem.Response, error) {
		together.Done()
		together.Wait() // until there is one in each process
		return created, localStep(op, "book")
	}, operation.WithConcurrency(1))
	for range processes {
		s.aside().workRarely(t, d)
	}
	eventually(t, "all processes and two guards", func() bool { return s.count(presences) == processes && s.count(guards) == 2 })
	s.startSome(t, d, processes)
	eventually(t, "all operations to end", s.completed(processes))
}

// Neither guard has the definition. The guards notify a process that has it.
func TestGuard_NotifiesProcessesWithTheDefinition(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			inMode := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
			known := operation.Define("known", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
			s.aside(inMode).workRarely(t, s.checkout())
			s.aside(inMode).workRarely(t, s.checkout())
			eventually(t, "two guards", func() bool { return s.count(guards) == 2 })
			s.aside(inMode).workRarely(t, known)
			eventually(t, "all processes", func() bool { return s.count(presences) == 3 })
			time.Sleep(time.Second) // its own first look is over: a slower one makes the test say less, and never fail
			s.startSome(t, known, 1)
			eventually(t, "the operation to end", s.completed(1))
		})
	}
}

// More operations are due of a definition that is gone than a guard reads: what is due of others is found all the same, by the only
// process and by one of several.
func TestGuard_FindsOthersBehindAMissingDefinition(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.sleepers(t, 10_001)
			if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp() - interval '1 hour'`); err != nil {
				t.Fatal(err)
			}
			known := operation.Define("known", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
			for range processes {
				s.aside().workRarely(t, known)
			}
			eventually(t, "all processes", func() bool { return s.count(presences) == processes && s.count(guards) > 0 })
			time.Sleep(time.Second) // the first looks are over: slower ones make the test say less, and never fail
			s.startSome(t, known, 1)
			eventually(t, "the operation to end", s.completed(1))
		})
	}
}

// A guard whose pool has no connection for it finds nothing: another process becomes one.
func TestGuard_ResignsWithoutAConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) { return created, localStep(op, "book") })
	for n := range 2 {
		starved := s.aside(maxConns(1))
		starved.workRarely(t, d)
		eventually(t, "another guard", func() bool { return s.count(guards) == n+1 })
		c, err := starved.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
	s.aside().workRarely(t, d)
	eventually(t, "all processes", func() bool { return s.count(presences) == 3 })
	eventually(t, "the third process to be a guard", func() bool {
		return s.count(`select count(*) from pg_locks g join pg_locks p using (database, pid) where g.classid = 1768187248 and p.classid = 1768187247
			and p.objid::int8 = (select last_value from idem.instances) and database = (select oid from pg_database where datname = current_database())`) == 1
	})
	s.startSome(t, d, 1)
	eventually(t, "the operation to end", s.completed(1))
}
