package fault

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
)

func resumptionKinds() []Kind {
	// A claim of operations that finds none answers UPDATE 0. The traps below wait for an answer
	// with at least one row.
	var some []string
	for n := range 9 {
		some = append(some, fmt.Sprint("UPDATE ", n+1))
	}
	return []Kind{
		{Name: KillBeforeTaking, Group: Resumption, weight: 3, inject: killAt(pgproxy.Before(isTaking))},
		{Name: KillAfterTaking, Group: Resumption, weight: 6, inject: killAt(pgproxy.AfterAnswer(isTaking, some...))},
		{Name: LoseTaking, Group: Resumption, weight: 6, inject: loseAt(pgproxy.AfterAnswer(isTaking, some...))},
	}
}

// isTaking reports whether s is a statement that claims operations to resume them.
func isTaking(s pgproxy.Statement) bool {
	name := libraryName(s.SQL)
	return name == "TakeOperation" || name == "TakeOperations"
}

func operations() Leg {
	return Leg{
		Name: Operations, Work: OperationWork,
		stage: func(ctx context.Context, s *Scene, opts LegOptions) error {
			s.act, s.pause = harmOperations, time.Second
			return s.start(ctx, opts, cluster.Options{})
		},
	}
}

func operationsFailover() Leg {
	l := synchronousFailover()
	l.Name, l.Work = OperationsFailover, OperationWork
	return l
}

// harmOperations injects one of the faults that operations and messages must survive. They belong
// to these legs only; the main leg draws from Kinds.
func harmOperations(ctx context.Context, i *injection) error {
	switch n := i.rng.IntN(10); {
	case n < 6:
		return zombie(ctx, i)
	case n < 8:
		i.detail("all sessions are terminated")
		return i.Cluster.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	case n < 9:
		i.detail("the server is killed")
		return whileDown(killServer)(ctx, i)
	}
	i.detail("the server is stopped without a checkpoint")
	return whileDown(immediateStop)(ctx, i)
}

// zombie stops a worker, cuts its connections, ends its lease, and resumes it after other workers
// had time to take over its operations. The worker then continues with sessions and leases that it
// lost, and every write that it attempts must be refused.
func zombie(ctx context.Context, i *injection) error {
	worker := i.worker()
	if err := i.signal(worker, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = i.Workers.Signal(worker, syscall.SIGCONT) }()
	i.detail("a zombie")
	i.Workers.Proxy(worker).Cut(pgproxy.Reset)
	if err := i.Cluster.Exec(ctx, "UPDATE idem.leases SET expires_at = clock_timestamp()"); err != nil {
		return err
	}
	sleep(ctx, i.between(500*time.Millisecond, 3*time.Second))
	return nil
}
