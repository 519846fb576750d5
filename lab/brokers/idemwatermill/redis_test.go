package idemwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// server is a Redis that syncs its data to disk before it answers.
type server struct {
	dir     string
	port    int
	process *child.Process
}

// shared is the broker of all tests of a run. Tests that restart it are not parallel, so that they
// run first.
var shared = sync.OnceValues(newServer)

// broker returns the shared server.
func broker(t testing.TB) *server {
	t.Helper()
	s, err := shared()
	optional.Require(t, err)
	return s
}

func newServer() (*server, error) {
	if _, err := optional.Find("redis-server"); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "idemwatermill-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if s.port, err = pgserver.FreePort(); err != nil {
		return nil, err
	}
	return s, s.start(context.Background())
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// start starts the server on its data, and waits until it answers.
func (s *server) start(ctx context.Context) (err error) {
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--daemonize", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", "always")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C does not reach it
	if s.process, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.address(), MaxRetries: -1})
	defer client.Close()
	for client.Ping(ctx).Err() != nil {
		select {
		case <-s.process.Done():
			return errors.New("Redis did not start")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// restart kills the server and starts it again.
func (s *server) restart(ctx context.Context) error {
	s.process.Kill()
	return s.start(ctx)
}

func TestMain(m *testing.M) {
	ledger.Work(roles)
	code := m.Run()
	if s, _ := shared(); s != nil {
		s.process.Kill()
		os.RemoveAll(s.dir)
	}
	os.Exit(code)
}
