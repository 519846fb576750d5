package pgserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// Options say how a server is made. The zero value is good.
type Options struct {
	// Bin is the directory of PostgreSQL's programs, by default that of the first installation that Find lists.
	Bin string
	// Dir is an existing directory for what belongs to the server, who becomes its owner and has to be able to reach it.
	// By default it is a temporary one, which Close removes.
	Dir string
	// Data is where the data directory is made, by default in Dir.
	Data string
	// WAL is where the directory of the write-ahead log is made, by default in Data.
	WAL string
	// Settings are of the form name=value. The last of a name counts, and counts more than ALTER SYSTEM.
	Settings []string
	// Env is added to the environment of postgres, in the form NAME=value, such as LD_PRELOAD=/path.
	Env []string
}

// Server is one PostgreSQL server. Its methods are not for concurrent use, except those that only tell something.
type Server struct {
	opts     Options
	owned    bool // Dir was made by us
	user     *syscall.Credential
	password string
	port     int

	postmaster *child.Process // nil until the first start
}

// Start makes a server and starts it.
func Start(ctx context.Context, opts Options) (*Server, error) {
	s, err := Create(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Create makes a server that has data and does not run yet.
func Create(ctx context.Context, opts Options) (*Server, error) {
	s, err := newServer(opts, rand.Text())
	if err != nil {
		return nil, err
	}
	if err := s.initdb(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func newServer(opts Options, password string) (*Server, error) {
	if opts.Bin == "" {
		found, err := Find("")
		if err != nil {
			return nil, err
		}
		opts.Bin = found[0].Dir
	}
	user, err := Unprivileged(os.Getuid())
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, user: user, password: password}
	if opts.Dir == "" {
		if s.opts.Dir, err = os.MkdirTemp("", "idem-pgserver-"); err != nil {
			return nil, err
		}
		s.owned = true
	}
	if s.opts.Data == "" {
		s.opts.Data = filepath.Join(s.opts.Dir, "data")
	}
	if err := s.give(s.opts.Dir); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) initdb(ctx context.Context) error {
	if loaded, err := s.loadData(ctx); loaded || err != nil {
		return err
	}
	password := filepath.Join(s.opts.Dir, "password")
	if err := os.WriteFile(password, []byte(verifier(s.password)), 0o600); err != nil {
		return err
	}
	defer os.Remove(password)
	if err := s.give(password); err != nil {
		return err
	}
	args := []string{"--pgdata", s.opts.Data, "--username=postgres", "--pwfile", password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"}
	if s.opts.WAL != "" {
		args = append(args, "--waldir", s.opts.WAL)
	}
	return finish(s.program(ctx, "initdb", args...))
}

// finish runs a program to its end. What it says is in the error.
func finish(program *exec.Cmd) error {
	out, err := program.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program.Path), err, bytes.TrimSpace(out))
	}
	return nil
}

// program prepares one of PostgreSQL's programs: as the right user, out of reach of the terminal's signals, and with no
// variable of the environment that could lead it to another server.
func (s *Server) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, name), args...)
	cmd.Dir = s.opts.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user, Setsid: true}
	return cmd
}

func (s *Server) give(path string) error {
	if s.user == nil {
		return nil
	}
	return os.Chown(path, int(s.user.Uid), int(s.user.Gid))
}

// DSN is the address of the server's first database, postgres, as its superuser. It stays the same for good once the
// server has been started.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", s.password, s.port)
}

// Port is where the server listens on 127.0.0.1: 0 before it has been started.
func (s *Server) Port() int { return s.port }

// Data is the data directory.
func (s *Server) Data() string { return s.opts.Data }

// Bin is the directory of the programs.
func (s *Server) Bin() string { return s.opts.Bin }

// Log is the file that the server writes its log to.
func (s *Server) Log() string { return filepath.Join(s.opts.Dir, "postgres.log") }

// LogTail is what the server had to say last.
func (s *Server) LogTail() string {
	const enough = 2000 // for a terminal
	log, _ := os.ReadFile(s.Log())
	return string(bytes.TrimSpace(log[max(0, len(log)-enough):]))
}

// Close stops the server, if it runs, without writing anything that it need not, and removes the directory that was made
// for it. A directory of the caller's is left as it is.
func (s *Server) Close() error {
	err := s.Stop(Immediate)
	if s.owned {
		err = errors.Join(err, os.RemoveAll(s.opts.Dir))
	}
	return err
}
