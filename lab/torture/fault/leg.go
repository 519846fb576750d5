package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/lab/torture/cluster"
)

// Work is what the workers of a leg do.
type Work string

// The kinds of work.
const (
	CallWork      Work = ""           // calls of idem.Do and its like
	OperationWork Work = "operations" // with a bank, which they call
	MessageWork   Work = "messages"   // with a broker, which they publish to and consume from
)

// Leg is a scenario on a cluster of its own: something that happens to a server as a whole, again and again.
type Leg struct {
	Name  Name
	About string
	// Possible is nil, or why this machine cannot do it.
	Possible error
	// Loses and MovesClock say that some of its events do.
	Loses, MovesClock bool
	// Work is what its workers do.
	Work Work
	// Quiet says that nothing is broken: what is looked for happens on an ordinary day.
	Quiet bool
	// Direct says that messages have their effects by package direct, without a broker.
	Direct bool

	stage func(context.Context, *Scene, LegOptions) error
}

// LegOptions say what the cluster of a leg is like, besides what the leg needs.
type LegOptions struct {
	Bin      string
	Settings []string
	Bouncer  bool
	Duration time.Duration // for which workers will write
}

// growth is by how much the data grows meanwhile, at the most, in mebibytes: workers write less than half a one a second.
func (o LegOptions) growth() int64 { return int64(o.Duration/time.Second) / 2 }

// Legs are all scenarios.
func Legs() []Leg {
	return []Leg{
		synchronousFailover(), asynchronousFailover(), stalledFailover(), dataDiskFull(), walDiskFull(), syncFails(), powerLoss(), clockJumps(),
		operations(), operationsFailover(), messages(), messagesFailover(), messagesDay(), messagesDirect(), messagesDirectDay(),
	}
}

// Scene is a leg that has begun.
type Scene struct {
	Cluster *cluster.Cluster

	name    Name
	prepare func() error // before the first act, when the workload's tables are there
	act     func(context.Context, *injection) error
	pause   time.Duration // between two acts, on average
	limits  limits        // of each
	closers []func() error
}

// Start makes the leg's cluster.
func (l Leg) Start(ctx context.Context, opts LegOptions) (*Scene, error) {
	if l.Possible != nil {
		return nil, l.Possible
	}
	s := &Scene{name: l.Name, pause: 2 * time.Second, limits: actLimits}
	if err := l.stage(ctx, s, opts); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Run does what the leg is about until ctx ends, once at least, and returns when everything works again. [Run] may go on
// at the same time for the same workers, without the cluster. An error means that the cluster is not what it was: it
// could not be brought back, or a fault could not be injected.
func (s *Scene) Run(ctx context.Context, seed uint64, workers Workers, log func(Event)) error {
	if s.prepare != nil {
		if err := s.limits.bound(ctx, func(context.Context) error { return s.prepare() }); err != nil {
			return err
		}
	}
	target := Target{Cluster: s.Cluster, Workers: workers}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := uint64(1); ; n++ {
		sleep(ctx, s.pause/2+time.Duration(rng.Int64N(int64(s.pause))))
		if ctx.Err() != nil && n > 1 {
			return heal(target)
		}
		// What has begun is carried through, so that nothing is left half done.
		err := target.inject(context.WithoutCancel(ctx), s.limits, s.kind(), rand.New(rand.NewPCG(seed, n)), log)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
}

// kind is the act, as a fault of the server.
func (s *Scene) kind() Kind { return Kind{Name: s.name, Group: Server, inject: s.act} }

// Schedule says how often the leg acts.
func (s *Scene) Schedule() Schedule { return newSchedule([]Kind{s.kind()}, s.pause, s.limits) }

// Close stops the cluster and removes what was made for it.
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

// start makes the cluster, from what the leg needs and what the caller wants.
func (s *Scene) start(ctx context.Context, opts LegOptions, needs cluster.Options) (err error) {
	needs.Bin, needs.Bouncer = opts.Bin, opts.Bouncer
	needs.Settings = append(needs.Settings, opts.Settings...)
	s.Cluster, err = cluster.Start(ctx, needs)
	return err
}
