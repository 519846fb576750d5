// Package patroni runs Postgres clusters under Patroni and a three-node etcd on the loopback
// interface.
package patroni

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// programs has the paths of the installed programs, and the user, directory and password for
// running them.
type programs struct {
	patroni, etcd string
	postgres      string // directory of PostgreSQL's programs
	user          *syscall.Credential
	dir           string
	password      string
}

// Possible returns nil if all programs are installed, and otherwise an [optional.MissingError] that
// names the missing ones.
func Possible() error {
	_, err := find()
	return err
}

func find() (programs, error) {
	var p programs
	paths, err := optional.FindAll("patroni", "etcd", "postgres")
	if err != nil {
		return p, err
	}
	p.patroni, p.etcd = paths[0], paths[1]
	if p.postgres, err = pgserver.Find(""); err != nil {
		return p, err
	}
	p.user, err = pgserver.Unprivileged(os.Getuid())
	return p, err
}

// own gives a file or directory to the user who runs the programs.
func (p programs) own(path string) error {
	if p.user == nil {
		return nil
	}
	return os.Chown(path, int(p.user.Uid), int(p.user.Gid))
}

// start starts a program that ends with this process. The output goes to the file name.log.
func (p programs) start(name, program string, args ...string) (*child.Process, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + p.postgres + ":/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user, Setsid: true}
	return child.Start(cmd, syscall.SIGTERM)
}

func ports(n int) ([]int, error) {
	found := make([]int, n)
	for i := range found {
		var err error
		if found[i], err = pgserver.FreePort(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

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

// KillEtcdLeader kills the leader of etcd. The function revive starts that node again.
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
	_ = os.RemoveAll(s.dir) // a failure only leaves files in the temporary directory
}

// etcd is a cluster of three nodes. It works as long as two are running.
type etcd struct {
	programs
	peers   string
	clients []int
	listen  []int
	nodes   []*child.Process
}

const etcdNodes = 3

// startEtcd starts the nodes and waits until they have a leader.
func startEtcd(ctx context.Context, p programs) (*etcd, error) {
	free, err := ports(2 * etcdNodes)
	if err != nil {
		return nil, err
	}
	e := &etcd{programs: p, clients: free[:etcdNodes], listen: free[etcdNodes:], nodes: make([]*child.Process, etcdNodes)}
	var peers []string
	for i, port := range e.listen {
		peers = append(peers, fmt.Sprintf("e%d=http://127.0.0.1:%d", i, port))
	}
	e.peers = strings.Join(peers, ",")
	for i := range e.nodes {
		if err := e.run(i); err != nil {
			e.stop()
			return nil, err
		}
	}
	return e, await(ctx, "etcd has a leader", func() bool { _, err := e.leader(ctx); return err == nil })
}

func (e *etcd) run(i int) (err error) {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", e.clients[i]), fmt.Sprintf("http://127.0.0.1:%d", e.listen[i])
	name := fmt.Sprintf("e%d", i)
	e.nodes[i], err = e.start(name, e.etcd, "--name", name, "--data-dir", e.dir+"/"+name+".etcd", "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", e.peers, "--initial-cluster-token", "fleet", "--unsafe-no-fsync")
	return err
}

func (e *etcd) leader(ctx context.Context) (int, error) {
	for i, port := range e.clients {
		var status struct {
			Leader string
			Header struct {
				Member string `json:"member_id"`
			}
		}
		err := call(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v3/maintenance/status", port), &status)
		if err == nil && status.Leader != "" && status.Leader == status.Header.Member {
			return i, nil
		}
	}
	return 0, errors.New("patroni: etcd has no leader")
}

func (e *etcd) stop() {
	for _, n := range e.nodes {
		if n != nil {
			n.Kill()
		}
	}
}

// call sends a request to an HTTP API and decodes the JSON response.
func call(ctx context.Context, method, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// await polls the function until it returns true. It fails if ctx ends first.
func await(ctx context.Context, what string, is func() bool) error {
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("patroni: not in time: %s: %w", what, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
