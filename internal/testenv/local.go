package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// local is a server run from the programs on this machine.
type local struct {
	dir      string // parent of data and log
	bin      string
	user     *syscall.Credential // nil: as ourselves
	password string
	settings settings
}

// startLocal starts the first of the installations found that works.
func startLocal(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	found, err := installations(cfg.bin, binDirs)
	if err != nil {
		return nil, err
	}
	user, err := unprivileged(os.Getuid())
	if err != nil {
		return nil, err
	}
	var failures []error
	for i, inst := range found {
		l := &local{
			dir: filepath.Join(dir.path, strconv.Itoa(i)), bin: inst.dir, user: user,
			password: rand.Text(), settings: cfg.settings,
		}
		srv, err := l.start(ctx)
		if err == nil || ctx.Err() != nil {
			return srv, err
		}
		failures = append(failures, fmt.Errorf("%s: %w", inst.dir, err))
	}
	return nil, errors.Join(failures...)
}

func (l *local) start(ctx context.Context) (*server, error) {
	if err := l.initdb(ctx); err != nil {
		return nil, err
	}
	var err error
	for range 3 { // a port that was free may be taken before postgres binds it
		var srv *server
		if srv, err = l.serve(ctx); err == nil || ctx.Err() != nil {
			return srv, err
		}
	}
	return nil, fmt.Errorf("%w\n%s", err, l.logTail())
}

func (l *local) initdb(ctx context.Context) error {
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return err
	}
	password := filepath.Join(l.dir, "password")
	if err := os.WriteFile(password, []byte(l.password), 0o600); err != nil {
		return err
	}
	if l.user != nil {
		if err := errors.Join(l.give(l.dir), l.give(password)); err != nil {
			return err
		}
	}
	out, err := l.program(ctx, "initdb", "--pgdata", l.data(), "--username=postgres", "--pwfile", password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// serve runs postgres on the loopback interface only, and without a socket file, whose path could be too long.
func (l *local) serve(ctx context.Context) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(l.log())
	if err != nil {
		return nil, err
	}
	defer log.Close()

	args := append([]string{"-D", l.data()}, l.settings.args()...)
	args = append(args, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", strconv.Itoa(port))
	// Not bound to the context: an interrupt is for us, who stop the server after the command.
	cmd := l.program(context.WithoutCancel(ctx), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithUs(cmd.SysProcAttr, syscall.SIGQUIT) // on which postgres leaves at once, with its shared memory
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	go func() { defer close(gone); cmd.Wait() }()

	url := fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", l.password, port)
	if err := waitReady(ctx, url, 30*time.Second, gone); err != nil {
		stopProcess(cmd.Process, gone)
		return nil, err
	}
	return &server{url: url, what: "local, " + l.bin, stop: func() { stopProcess(cmd.Process, gone) }}, nil
}

// program prepares one of PostgreSQL's programs: as the right user, out of reach of the terminal's signals, and with no
// variable of the environment that could lead it to another server.
func (l *local) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin, name), args...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.user, Setsid: true}
	return cmd
}

func (l *local) give(path string) error { return os.Chown(path, int(l.user.Uid), int(l.user.Gid)) }

func (l *local) data() string { return filepath.Join(l.dir, "data") }
func (l *local) log() string  { return filepath.Join(l.dir, "postgres.log") }

// logTail is what the server had to say in the end.
func (l *local) logTail() string {
	log, _ := os.ReadFile(l.log())
	return tail(log)
}

// tail is as much of a log as one wants to read in a terminal.
func tail(log []byte) string {
	return string(bytes.TrimSpace(log[max(0, len(log)-2000):]))
}

// stopProcess ends postgres without a checkpoint, because nobody reads this data again.
func stopProcess(postgres *os.Process, gone <-chan struct{}) {
	postgres.Signal(syscall.SIGQUIT)
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		postgres.Kill()
		<-gone
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
