package patroni

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"syscall"
)

// System is an etcd cluster and the Postgres clusters that use it.
type System struct {
	programs
	etcd     *etcd
	clusters []*Cluster
}

// Start starts etcd. Close ends etcd and all clusters, and deletes their files.
func Start(ctx context.Context) (*System, error) {
	p, err := find()
	if err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "idem-fleet-"); err != nil {
		return nil, err
	}
	p.password = rand.Text()
	s := &System{programs: p}
	if err := p.own(p.dir); err != nil {
		s.Close()
		return nil, err
	}
	if s.etcd, err = startEtcd(ctx, p); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Clusters starts clusters with the given numbers of nodes and waits until all of them are whole.
func (s *System) Clusters(ctx context.Context, nodes map[string]int) (map[string]*Cluster, error) {
	clusters := map[string]*Cluster{}
	for name, n := range nodes {
		c, err := s.cluster(ctx, name, n)
		if err != nil {
			return nil, err
		}
		clusters[name] = c
	}
	var failed error
	for _, c := range clusters {
		failed = errors.Join(failed, c.Whole(ctx))
	}
	return clusters, failed
}

// KillEtcdLeader kills the leader of etcd. revive starts it again.
func (s *System) KillEtcdLeader(ctx context.Context) (revive func() error, err error) {
	i := 0
	err = await(ctx, "etcd has a leader", func() (led bool) {
		at, failed := s.etcd.leader(ctx)
		i = at
		return failed == nil
	})
	if err != nil {
		return nil, err
	}
	s.etcd.nodes[i].Kill()
	return func() error { return s.etcd.run(i) }, nil
}

// Dir returns the directory with the logs.
func (s *System) Dir() string { return s.dir }

// Close ends all clusters and etcd, and deletes their files.
func (s *System) Close() {
	for _, c := range s.clusters {
		for i := range c.patronis {
			c.kill(i, syscall.SIGQUIT)
		}
	}
	if s.etcd != nil {
		s.etcd.stop()
	}
	_ = os.RemoveAll(s.dir) // leftovers remain in the temporary directory
}
