package scene

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/patroni"
	"github.com/idem-go/idem/example/fleet/shop"
	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/example/orders/process"
	"github.com/idem-go/idem/migrations"
)

const (
	Mover = "acme"   // the tenant that moves; its first home is west
	Stays = "globex" // the tenant that stays in east
)

var tenants = []string{Mover, Stays}

// Stage is the environment of the scenes: clusters under Patroni with etcd, a bank, and instances
// of the service.
type Stage struct {
	system     *patroni.System
	west, east fleet.Cluster
	nodes      map[string]*patroni.Cluster
	bank       *bank.Bank
	server     *http.Server
	env        []string
	keys       int
	mu         sync.Mutex
	instances  []*process.Process
	closers    []func()
}

// Instances is the number of running instances of the service.
const Instances = 3

// Start starts a Stage. The tenant Mover gets a history of that many keys.
func Start(ctx context.Context, keys int) (*Stage, error) {
	s := &Stage{keys: keys}
	err := s.build(ctx)
	if err != nil {
		s.Close()
	}
	return s, err
}

// build starts all parts. It registers how to stop each part in s.closers.
func (s *Stage) build(ctx context.Context) (err error) {
	if s.system, err = patroni.Start(ctx); err != nil {
		return err
	}
	s.closers = append(s.closers, s.system.Close)
	if s.nodes, err = s.system.Clusters(ctx, map[string]int{"west": 3, "east": 2}); err != nil {
		return err
	}
	for _, c := range []struct {
		name, tenant string
		at           *fleet.Cluster
	}{{"west", Mover, &s.west}, {"east", Stays, &s.east}} {
		if *c.at, err = open(c.name, s.nodes[c.name].DSN()); err != nil {
			return err
		}
		s.closers = append(s.closers, c.at.Pool.Close)
		if err := prepare(ctx, *c.at, c.tenant); err != nil {
			return err
		}
	}
	if err := shop.Fill(ctx, s.west, Mover, s.keys); err != nil {
		return err
	}
	if err := s.openBank(); err != nil {
		return err
	}
	s.env = append(s.env, westVariable+"="+s.nodes["west"].DSN(), eastVariable+"="+s.nodes["east"].DSN())
	for range Instances {
		if err := s.startInstance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare creates the schemas of idem, the shop and the fleet in a cluster, and places a tenant
// there.
func prepare(ctx context.Context, c fleet.Cluster, tenant string) error {
	if err := migrations.Up(ctx, c.Pool); err != nil {
		return err
	}
	if _, err := c.Pool.Exec(ctx, shop.Schema); err != nil {
		return err
	}
	return errors.Join(fleet.Install(ctx, c, shop.Tables), fleet.Place(ctx, c, tenant))
}

func (s *Stage) openBank() (err error) {
	dir, err := os.MkdirTemp("", "idem-fleet-bank-")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(dir) })
	if s.bank, err = bank.Open(filepath.Join(dir, "ledger"), time.Second); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.server = &http.Server{Handler: s.bank, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(listener) }() // until it is closed
	s.closers = append(s.closers, func() { _ = s.server.Close(); _ = s.bank.Close() })
	s.env = append(s.env, bankVariable+"=http://"+listener.Addr().String())
	return nil
}

func (s *Stage) startInstance(ctx context.Context) error {
	p, err := s.run(ctx, "serve")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = append(s.instances, p)
	return nil
}

// run starts this program with another command and waits until it is ready.
func (s *Stage) run(ctx context.Context, command ...string) (*process.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(append([]string{program}, command...), s.env, os.Stderr)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, p.Stop)
	if err := p.WaitUntilReady(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotStarted, err)
	}
	return p, nil
}

// errNotStarted means that a process ended before it was ready.
var errNotStarted = errors.New("it did not come as far as to be killed, or to serve")

// addresses returns the URLs of all instances, including a killed one: clients must cope with it.
func (s *Stage) addresses() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.instances {
		all = append(all, p.URL)
	}
	return all
}

func (s *Stage) killInstance(ctx context.Context) (revive func() error) {
	s.mu.Lock()
	first := s.instances[0]
	s.mu.Unlock()
	first.Kill()
	return func() error {
		if err := s.startInstance(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.instances = s.instances[1:]
		return nil
	}
}

// homes returns the home of the tenant and the other cluster.
func (s *Stage) homes(ctx context.Context, tenant string) (home, other fleet.Cluster, err error) {
	err = insist(ctx, func() (err error) {
		home, err = fleet.Home(ctx, []fleet.Cluster{s.west, s.east}, tenant)
		return err
	})
	if err != nil {
		return home, other, fmt.Errorf("%s: %w", tenant, err)
	}
	if home.Name == s.west.Name {
		return home, s.east, nil
	}
	return home, s.west, nil
}

// Close stops all parts in reverse order and deletes their files.
func (s *Stage) Close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
