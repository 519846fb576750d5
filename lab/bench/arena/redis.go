package arena

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// redisServer is a Redis of our own, with its log on the same disk as Postgres.
type redisServer struct {
	process *child.Process
	address string
}

func startRedis(ctx context.Context, dir, fsync string, env []string) (*redisServer, error) {
	program, err := optional.Find("redis-server")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "redis-"+fsync)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", data, "--daemonize", "no", "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	server := &redisServer{process, net.JoinHostPort("127.0.0.1", port)}
	if err := server.await(ctx); err != nil {
		server.close()
		return nil, err
	}
	return server, nil
}

// await asks until the server answers. It is done within milliseconds, as a rule.
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

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
