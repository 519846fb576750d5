package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/torture/cluster"
)

// Leg is a scenario on a cluster of its own: something that happens to a server as a whole, again and again.
type Leg struct {
	Name, About string
	// Possible is nil, or why this machine cannot do it.
	Possible error
	// Loses and MovesClock say that some of its events do.
	Loses, MovesClock bool

	stage func(context.Context, *Scene, LegOptions) error
}

// LegOptions say what the cluster of a leg is like, besides what the leg needs.
type LegOptions struct {
	Bin      string
	Settings []string
	Bouncer  bool
}

// Legs are all scenarios.
func Legs() []Leg {
	return []Leg{
		synchronousFailover(), asynchronousFailover(), dataDiskFull(), walDiskFull(), syncFails(), powerLoss(), clockJumps(),
	}
}

// errNotInstalled is why a leg is not possible where it could be.
var errNotInstalled = errors.New("not installed")

// Scene is a leg that has begun.
type Scene struct {
	Cluster *cluster.Cluster

	name    string
	prepare func() error // before the first act, when the workload's tables are there
	act     func(context.Context, *injection) error
	pause   time.Duration // between two acts, on average
	closers []func() error
}

// Start makes the leg's cluster.
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

// Run does what the leg is about until ctx ends, once at least, and returns when everything works again. [Run] may go on
// at the same time for the same workers, without the cluster. An error means that the cluster is not what it was: it
// could not be brought back, or a fault could not be injected.
func (s *Scene) Run(ctx context.Context, seed uint64, workers Workers, log func(Event)) error {
	if s.prepare != nil {
		if err := s.prepare(); err != nil {
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
		i := &injection{Target: target, rng: rand.New(rand.NewPCG(seed, n)), event: Event{Kind: s.name, Worker: -1}}
		i.strike()
		// What has begun is carried through, so that nothing is left half done.
		acting, cancel := context.WithTimeout(context.WithoutCancel(ctx), actLimit)
		err := s.act(acting, i)
		cancel()
		i.finish(err, log)
		if err != nil && !errors.Is(err, errMissed) {
			return err
		}
	}
}

// actLimit is for an act and the recovery from it.
const actLimit = 2 * time.Minute

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
