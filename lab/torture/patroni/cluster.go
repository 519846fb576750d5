package patroni

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// Cluster is a Postgres cluster under Patroni: a leader and its standbys.
type Cluster struct {
	programs
	name     string
	etcd     *etcd
	ports    []int // ports of Postgres
	rest     []int // ports of Patroni's REST API
	patronis []*child.Process
}

func (s *System) cluster(ctx context.Context, name string, nodes int) (*Cluster, error) {
	free, err := ports(2 * nodes)
	if err != nil {
		return nil, err
	}
	c := &Cluster{programs: s.programs, name: name, etcd: s.etcd, ports: free[:nodes], rest: free[nodes:], patronis: make([]*child.Process, nodes)}
	s.clusters = append(s.clusters, c)
	for i := range c.patronis {
		if err := c.run(i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// DSN returns a connection string that finds the leader on any node.
func (c *Cluster) DSN() string {
	hosts := make([]string, len(c.ports))
	for i, port := range c.ports {
		hosts[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2", c.password, strings.Join(hosts, ","))
}

// Whole waits until the cluster has a leader, a synchronous standby, and all of its nodes.
func (c *Cluster) Whole(ctx context.Context) error {
	return await(ctx, c.name+" is whole", func() bool {
		members := c.members(ctx)
		working := 0
		for _, m := range members {
			if m.State == "running" || m.State == "streaming" {
				working++
			}
		}
		has := func(role string) bool {
			return slices.ContainsFunc(members, func(m member) bool { return m.Role == role })
		}
		return working == len(c.ports) && has("leader") && has("sync_standby")
	})
}

type member struct {
	Name, Role, State string
}

// members returns the nodes as Patroni sees them. It asks one node after another until one answers.
func (c *Cluster) members(ctx context.Context) []member {
	for _, port := range c.rest {
		var found struct{ Members []member }
		if call(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/cluster", port), &found) == nil {
			return found.Members
		}
	}
	return nil
}

// KillLeader kills Patroni and Postgres on the leader with SIGKILL. The function revive starts the
// node again.
func (c *Cluster) KillLeader(ctx context.Context) (revive func() error, err error) {
	var leader member
	err = await(ctx, c.name+" has a leader", func() bool {
		members := c.members(ctx)
		i := slices.IndexFunc(members, func(m member) bool { return m.Role == "leader" })
		if i >= 0 {
			leader = members[i]
		}
		return i >= 0
	})
	if err != nil {
		return nil, err
	}
	i, err := strconv.Atoi(leader.Name[len(leader.Name)-1:])
	if err != nil {
		return nil, err
	}
	c.kill(i, syscall.SIGKILL)
	return func() error { return c.run(i) }, nil
}

// kill ends a node: first Patroni, which would restart Postgres, and then Postgres by the signal.
// If the signal is SIGKILL, the backends get it too: they would outlive the postmaster for a while.
func (c *Cluster) kill(i int, sig syscall.Signal) {
	if c.patronis[i] != nil {
		c.patronis[i].Kill()
	}
	pidFile, err := os.ReadFile(filepath.Join(c.data(i), "postmaster.pid"))
	if err != nil {
		return // Postgres is not running
	}
	first, _, _ := strings.Cut(string(pidFile), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return
	}
	if sig == syscall.SIGKILL {
		for _, backend := range children(pid) {
			_ = syscall.Kill(backend, sig)
		}
	}
	_ = syscall.Kill(pid, sig)
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

func children(pid int) (found []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, field := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(field); err == nil {
			found = append(found, n)
		}
	}
	return found
}

func (c *Cluster) data(i int) string { return filepath.Join(c.dir, c.node(i), "data") }

func (c *Cluster) node(i int) string { return c.name + strconv.Itoa(i) }

// run starts Patroni on node i, which starts Postgres.
func (c *Cluster) run(i int) (err error) {
	home := filepath.Join(c.dir, c.node(i))
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	config := home + ".yml"
	if err := os.WriteFile(config, []byte(c.config(i)), 0o600); err != nil {
		return err
	}
	if err := errors.Join(c.own(home), c.own(config)); err != nil {
		return err
	}
	c.patronis[i], err = c.start(c.node(i), c.patroni, config)
	return err
}

// config returns the configuration of Patroni for node i. With the strict synchronous mode, the
// leader waits for a standby and accepts no write without one, so that a failover loses no commit.
// The short times speed up a failover. The ttl is the minimum that Patroni accepts.
func (c *Cluster) config(i int) string {
	var hosts []string
	for _, port := range c.etcd.clients {
		hosts = append(hosts, "127.0.0.1:"+strconv.Itoa(port))
	}
	return strings.NewReplacer("$SCOPE", c.name, "$NODE", c.node(i), "$REST", strconv.Itoa(c.rest[i]), "$PORT", strconv.Itoa(c.ports[i]),
		"$ETCD", strings.Join(hosts, ","), "$DIR", filepath.Join(c.dir, c.node(i)), "$BIN", c.postgres, "$PASSWORD", c.password).Replace(configuration)
}

const configuration = `scope: $SCOPE
name: $NODE
restapi: {listen: "127.0.0.1:$REST", connect_address: "127.0.0.1:$REST"}
etcd3: {hosts: "$ETCD"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 100, shared_buffers: 64MB, wal_log_hints: "on", wal_keep_size: 256MB}
  initdb: [{encoding: UTF8}, {locale: C.UTF-8}, data-checksums]
  pg_hba: ["host all all 127.0.0.1/32 scram-sha-256", "host replication all 127.0.0.1/32 scram-sha-256"]
postgresql:
  listen: 127.0.0.1:$PORT
  connect_address: 127.0.0.1:$PORT
  data_dir: $DIR/data
  bin_dir: $BIN
  pgpass: $DIR/pgpass
  authentication:
    superuser: {username: postgres, password: $PASSWORD}
    replication: {username: replicator, password: $PASSWORD}
    rewind: {username: rewind, password: $PASSWORD}
  parameters: {unix_socket_directories: "$DIR"}
`
