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

// redisServer is a Redis process. Its log is on the same disk as the data of Postgres.
type redisServer struct {
	process *child.Process
	address string
}

// Redis returns the address of a Redis server with the given value of the setting appendfsync. The
// first call for a value starts the server.
func (s *Server) Redis(ctx context.Context, fsync string) (address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server, ok := s.redis[fsync]; ok {
		return server.address, nil
	}
	program, err := optional.Find("redis-server")
	if err != nil {
		return "", err
	}
	data := filepath.Join(s.dir, "redis-"+fsync)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", err
	}
	port, err := pgserver.FreePort()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", data, "--daemonize", "no", "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the server then gets no signals from the terminal
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := awaitRedis(ctx, address); err != nil {
		process.Kill()
		return "", fmt.Errorf("redis-server does not answer: %w", err)
	}
	s.redis[fsync] = redisServer{process, address}
	return address, nil
}

// awaitRedis waits until the server answers, for at most ten seconds.
func awaitRedis(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
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
