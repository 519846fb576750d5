package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

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
	// Possible is nil, or why this machine cannot run the leg.
	Possible error
	Work     Work
	// Quiet reports that the leg injects no faults. It looks for defects that need none.
	Quiet bool
	// Direct reports that consumers get their messages by package direct, without a broker.
	Direct bool

	stage func(context.Context, *Scene, LegOptions) error
}

// LegOptions configure the cluster of a leg, in addition to what the leg itself needs.
type LegOptions struct {
	Settings []string
	Bouncer  bool
	Duration time.Duration // how long the workers will write
}

// growth returns how much the data can grow during the leg, in mebibytes. Workers write less than
// half a mebibyte a second.
func (o LegOptions) growth() int64 { return int64(o.Duration/time.Second) / 2 }

// Legs returns all legs.
func Legs() []Leg {
	return []Leg{
		synchronousFailover(), asynchronousFailover(), stalledFailover(), dataDiskFull(), walDiskFull(), syncFails(), powerLoss(), clockJumps(),
		operations(), operationsFailover(), messages(), messagesFailover(), messagesDay(), messagesDirect(), messagesDirectDay(),
	}
}

// Scene is a leg whose cluster is running.
type Scene struct {
	Cluster *cluster.Cluster

	name    Name
	prepare func() error // called before the first act, after the workload has created its tables
	act     func(context.Context, *injection) error
	pause   time.Duration // between two acts, on average
	closers []func() error
}

// Start starts the cluster of the leg. It returns l.Possible if that is not nil.
func (l Leg) Start(ctx context.Context, opts LegOptions) (*Scene, error) {
	if l.Possible != nil {
		return nil, l.Possible
	}
	s := &Scene{name: l.Name, pause: 2 * time.Second}
	if err := l.stage(ctx, s, opts); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Run repeats the event of the leg until ctx ends, at least once, and returns when everything works
// again. [Run] may inject faults into the same workers at the same time, with a Target without the
// cluster. Run fails if a fault could not be injected or if the cluster could not be repaired.
func (s *Scene) Run(ctx context.Context, seed uint64, workers Workers, log func(Event)) error {
	if s.prepare != nil {
		if err := bound(ctx, func(context.Context) error { return s.prepare() }); err != nil {
			return err
		}
	}
	target := Target{Cluster: s.Cluster, Workers: workers}
	act := Kind{Name: s.name, Group: Server, inject: s.act}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); ; n++ {
		sleep(ctx, s.pause/2+time.Duration(rng.Int64N(int64(s.pause))))
		if ctx.Err() != nil && n > 1 {
			return heal(target)
		}
		// An act that has begun is completed even if ctx ends: half an act would leave a broken
		// cluster.
		err := target.inject(context.WithoutCancel(ctx), act, rand.New(rand.NewPCG(seed, n)), log)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
}

// Close stops the cluster and removes everything that was made for it.
func (s *Scene) Close() error {
	var errs []error
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Close())
	}
	for _, closer := range s.closers {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// start starts the cluster with the options that the leg needs and those of the caller.
func (s *Scene) start(ctx context.Context, opts LegOptions, needs cluster.Options) (err error) {
	needs.Bouncer = opts.Bouncer
	needs.Settings = append(needs.Settings, opts.Settings...)
	s.Cluster, err = cluster.Start(ctx, needs)
	return err
}
