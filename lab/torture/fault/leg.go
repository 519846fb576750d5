package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// Work is the kind of calls that the workers of a leg make.
type Work string

// Kinds of work.
const (
	CallWork      Work = ""           // calls of idem.Do, DoTx and DoJSON
	OperationWork Work = "operations" // operations that call a bank
	MessageWork   Work = "messages"   // messages that are published to a broker and consumed from it
)

// Leg is a scenario on a cluster of its own. It repeats one event that affects the server as a
// whole.
type Leg struct {
	Name Name
	// Possible is nil, or the reason why this machine cannot run the leg.
	Possible error
	Work     Work
	// Quiet reports that the leg injects no faults. It looks for defects that show without faults.
	Quiet bool
	// Direct reports that consumers get their messages through package direct, without a broker.
	Direct bool

	needs cluster.Options
	pause time.Duration // average time between two events
	act   func(context.Context, *injection) error
	disk  int64 // size of a disk for the data or the WAL, in mebibytes; 0: no disk
}

// Legs returns all legs. The duration is how long the workers of a leg write; some disks grow with
// it.
func Legs(duration time.Duration) []Leg {
	const often, seldom = time.Second, 2 * time.Second
	var linux error
	if runtime.GOOS != "linux" {
		linux = errors.New("the receiver of a standby is found by /proc, which is Linux's")
	}
	growth := int64(duration/time.Second) / 2 // workers write less than half a mebibyte a second
	smallWAL := []string{"min_wal_size=32MB", "max_wal_size=64MB"}
	single, synchronous := cluster.Options{}, cluster.Options{Standby: cluster.Synchronous}
	data := cluster.Options{Data: "data", Settings: smallWAL}
	return []Leg{
		{Name: FailoverSync, needs: synchronous, pause: seldom, act: takeOver},
		{Name: FailoverAsync, needs: cluster.Options{Standby: cluster.Asynchronous}, pause: seldom, act: loseTheLatest, Possible: linux},
		{Name: FailoverStalled, needs: synchronous, pause: seldom, act: takeOverStalled, Possible: linux},
		{Name: DiskFullData, needs: data, disk: 384 + growth, pause: seldom, act: fullDisk, Possible: diskPossible()},
		{Name: DiskFullWAL, needs: cluster.Options{WAL: "wal", Settings: smallWAL}, disk: 192, pause: seldom, act: fullDisk, Possible: diskPossible()},
		{Name: SyncFails, needs: cluster.Options{Settings: []string{"wal_sync_method=fdatasync"}}, pause: seldom, act: failSync, Possible: tracePossible()},
		{Name: PowerLoss, needs: data, disk: 512 + growth, pause: 3 * time.Second, act: losePower, Possible: diskPossible()},
		{Name: Clock, needs: single, pause: often, act: jump, Possible: clockPossible()},
		{Name: Operations, Work: OperationWork, needs: single, pause: often, act: harm},
		{Name: OperationsFailover, Work: OperationWork, needs: synchronous, pause: seldom, act: takeOver},
		{Name: Messages, Work: MessageWork, needs: single, pause: often, act: harm},
		{Name: MessagesFailover, Work: MessageWork, needs: synchronous, pause: seldom, act: takeOver},
		{Name: MessagesDay, Work: MessageWork, needs: single, Quiet: true},
		{Name: MessagesDirect, Work: MessageWork, needs: single, pause: often, act: harm, Direct: true},
		{Name: MessagesDirectDay, Work: MessageWork, needs: single, Quiet: true, Direct: true},
	}
}

// Scene is a leg whose cluster is running.
type Scene struct {
	Cluster *cluster.Cluster

	leg   Leg
	clock *clock // set only in the leg Clock
	disk  *disk  // set only in a leg with a disk
}

// Start starts the cluster of the leg, with additional settings of the servers. It returns
// l.Possible if this machine cannot run the leg.
func (l Leg) Start(ctx context.Context, bouncer bool, settings []string) (*Scene, error) {
	if l.Possible != nil {
		return nil, l.Possible
	}
	s := &Scene{leg: l}
	if err := s.start(ctx, bouncer, settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Scene) start(ctx context.Context, bouncer bool, settings []string) (err error) {
	needs := s.leg.needs
	needs.Bouncer, needs.Settings = bouncer, slices.Concat(needs.Settings, settings)
	if s.leg.Name == Clock {
		if s.clock, err = newClock(); err != nil {
			return err
		}
		needs.Env = s.clock.env()
	}
	if s.leg.disk > 0 {
		if s.disk, err = newDisk(s.leg.disk); err != nil {
			return err
		}
		folder, err := s.disk.folder("postgres")
		if err != nil {
			return err
		}
		for _, place := range []*string{&needs.Data, &needs.WAL} {
			if *place != "" {
				*place = filepath.Join(folder, *place)
			}
		}
	}
	s.Cluster, err = cluster.Start(ctx, needs)
	return err
}

// Run repeats the event of the leg until ctx ends, at least once, and returns when everything works
// again. The function [Run] may inject faults into the same workers at the same time if its Target
// has no cluster. Run fails if a fault could not be injected or if the cluster could not be
// repaired.
func (s *Scene) Run(ctx context.Context, seed uint64, workers Workers, log func(Event)) error {
	if s.disk != nil { // the tables of the workload exist, and must survive a power loss
		if err := bound(ctx, func(context.Context) error { return s.disk.sync() }); err != nil {
			return err
		}
	}
	target := Target{Cluster: s.Cluster, Workers: workers, clock: s.clock, disk: s.disk}
	act := Kind{Name: s.leg.Name, Group: Server, inject: s.leg.act}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); ; n++ {
		sleep(ctx, s.leg.pause/2+time.Duration(rng.Int64N(int64(s.leg.pause))))
		if ctx.Err() != nil && n > 1 {
			return heal(target)
		}
		// An act that has begun is completed even if ctx ends: half an act would leave a broken
		// cluster.
		err := target.inject(context.WithoutCancel(ctx), act, rand.New(rand.NewPCG(seed, n)), log)
		if err != nil {
			return fmt.Errorf("%s: %w", s.leg.Name, err)
		}
	}
}

// Close stops the cluster and removes everything that was made for it.
func (s *Scene) Close() error {
	var errs []error
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Close())
	}
	if s.clock != nil {
		errs = append(errs, s.clock.close())
	}
	if s.disk != nil {
		errs = append(errs, s.disk.close())
	}
	return errors.Join(errs...)
}

// harm injects one of the faults that operations and messages must survive. Only their legs use it;
// the main leg draws its faults from a Mix.
func harm(ctx context.Context, i *injection) error {
	switch n := i.rng.IntN(10); {
	case n < 6:
		return zombie(ctx, i)
	case n < 8:
		return i.Cluster.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	case n < 9:
		return whileDown(killServer)(ctx, i)
	}
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
	i.note(func(e *Event) { e.EndsLeases = true })
	i.Workers.Proxy(worker).Cut(pgproxy.Reset)
	if err := i.Cluster.Exec(ctx, "UPDATE idem.leases SET expires_at = clock_timestamp()"); err != nil {
		return err
	}
	sleep(ctx, i.between(500*time.Millisecond, 3*time.Second))
	return nil
}
