package idemamqp_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// node is a RabbitMQ with a directory, ports and an epmd of its own.
type node struct {
	program              string
	dir                  string
	port, epmdPort, dist int
	epmd, beam           *child.Process
}

// shared is the broker of all tests of a run. Tests that restart it are not parallel, so that they
// run first.
var shared = sync.OnceValues(newNode)

// rabbit returns the shared node.
func rabbit(t testing.TB) *node {
	t.Helper()
	n, err := shared()
	optional.Require(t, err)
	return n
}

func newNode() (*node, error) {
	programs, err := optional.FindAll("rabbitmq-server", "epmd") // the server may be outside of PATH, and needs Erlang in it
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "idemamqp-")
	if err != nil {
		return nil, err
	}
	n := &node{program: programs[0], dir: dir}
	for _, port := range []*int{&n.port, &n.epmdPort, &n.dist} {
		if *port, err = pgserver.FreePort(); err != nil {
			return nil, err
		}
	}
	config := "loopback_users.guest = true\ndisk_free_limit.absolute = 1MB\nraft.wal_max_size_bytes = 32000000\nlog.console = false\n"
	if err := os.WriteFile(filepath.Join(dir, "rabbitmq.conf"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	epmd := n.command(programs[1], "-port", strconv.Itoa(n.epmdPort), "-address", "127.0.0.1")
	if n.epmd, err = child.Start(epmd, syscall.SIGKILL); err != nil { // Erlang would start an epmd that outlives the node
		return nil, err
	}
	return n, n.start(context.Background())
}

func (n *node) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = n.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}                        // a Ctrl-C does not reach it
	cmd.Env = append(os.Environ(), "HOME="+n.dir, "RUNNING_UNDER_SYSTEMD=true", // lets Erlang replace the shell
		"RABBITMQ_CONF_ENV_FILE="+n.dir+"/none", "RABBITMQ_CONFIG_FILE="+n.dir+"/rabbitmq", "RABBITMQ_ENABLED_PLUGINS_FILE="+n.dir+"/plugins",
		"RABBITMQ_MNESIA_BASE="+n.dir+"/mnesia", "RABBITMQ_LOG_BASE="+n.dir+"/log", "RABBITMQ_PID_FILE="+n.dir+"/pid",
		fmt.Sprintf("RABBITMQ_NODENAME=idem%d@localhost", n.port), "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", n.port), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", n.dist),
		"ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", n.epmdPort),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}")
	return cmd
}

func (n *node) url() string { return n.at(fmt.Sprintf("127.0.0.1:%d", n.port)) }

// at returns the URL of the node at another address, such as that of a proxy.
func (n *node) at(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// start starts the node on its directory, and waits until it accepts connections.
func (n *node) start(ctx context.Context) error {
	out, err := os.Create(filepath.Join(n.dir, "out"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := n.command(n.program)
	cmd.Stdout, cmd.Stderr = out, out
	if n.beam, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if conn, err := amqp.Dial(n.url()); err == nil {
			return conn.Close()
		}
		select {
		case <-n.beam.Done():
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("RabbitMQ did not start\n%s", text)
	}
}

// awaitRegistered waits until the node has written to disk that it has a quorum queue. RabbitMQ 3.10
// delays that write for some seconds. A node that is killed before it starts the queue anew under
// another identity, and never elects a leader for it.
func (n *node) awaitRegistered(t testing.TB, queue string) {
	t.Helper()
	registered := filepath.Join(n.dir, "mnesia", "*", "quorum", "*", "names.dets")
	eventually(t, "the queue to be registered on disk", func() bool {
		files, err := filepath.Glob(registered)
		if err != nil || len(files) != 1 {
			return false
		}
		names, err := os.ReadFile(files[0])
		return err == nil && bytes.Contains(names, []byte(queue))
	})
}

// kill kills the node like a power failure.
func (n *node) kill() { n.beam.Kill() }

func (n *node) remove() {
	if n.beam != nil {
		n.kill()
	}
	if n.epmd != nil {
		n.epmd.Kill()
	}
	os.RemoveAll(n.dir)
}

func TestMain(m *testing.M) {
	ledger.Work(roles)
	code := m.Run()
	if n, _ := shared(); n != nil {
		n.remove()
	}
	os.Exit(code)
}
