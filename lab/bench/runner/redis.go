package runner

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// redisServer is a Redis process whose log is on the same disk as Postgres.
type redisServer struct {
	process *child.Process
	address string
}

// Redis returns the address of a Redis server with the given value of appendfsync. It starts the
// server on the first call.
func (s *Server) Redis(ctx context.Context, fsync string) (address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redis[fsync] == nil {
		if s.redis[fsync], err = startRedis(ctx, s.dir, fsync); err != nil {
			delete(s.redis, fsync)
			return "", err
		}
	}
	return s.redis[fsync].address, nil
}

// startRedis starts a Redis server and waits until it answers.
func startRedis(ctx context.Context, dir, fsync string) (*redisServer, error) {
	program, err := optional.Find("redis-server")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "redis-"+fsync)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	port, err := pgserver.FreePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", data, "--daemonize", "no", "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // keep the signals of the terminal away
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	server := &redisServer{process, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if err := server.await(ctx); err != nil {
		server.close()
		return nil, fmt.Errorf("redis-server does not answer: %w", err)
	}
	return server, nil
}

// await waits until the server answers.
func (s *redisServer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.address, MaxRetries: -1})
	defer client.Close()
	for {
		err := client.Ping(ctx).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *redisServer) close() { s.process.Kill() }
