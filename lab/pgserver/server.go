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

// Options configures a server. The zero value is usable.
type Options struct {
	// Bin is the directory of PostgreSQL's programs. The default is the result of Find("").
	Bin string
	// Dir is an existing directory for the files of the server. The server's user becomes its owner
	// and must be able to reach it. The default is a temporary directory, which Close removes.
	Dir string
	// Data is the path of the data directory, which must not exist. The default is in Dir.
	Data string
	// WAL is the path of the directory for the write-ahead log. The default is in Data.
	WAL string
	// Settings are server settings of the form name=value. The last value of a name wins, and it
	// overrides ALTER SYSTEM.
	Settings []string
	// Env is added to the environment of postgres, in the form NAME=value, such as
	// LD_PRELOAD=/path.
	Env []string
}

// Server is one PostgreSQL server. Its methods are not safe for concurrent use, except those that
// only return information.
type Server struct {
	opts     Options
	owned    bool // Dir is temporary, and Close removes it
	user     *syscall.Credential
	password string
	port     int

	postmaster *child.Process // nil before the first start
}

// Start creates a server and starts it.
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

// Create creates a server with an initialized data directory. It does not start the server.
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
		var err error
		if opts.Bin, err = Find(""); err != nil {
			return nil, err
		}
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
	// A data directory can be created again, so initdb does not wait for the disk (--no-sync).
	args := []string{"--pgdata", s.opts.Data, "--username=postgres", "--pwfile", password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"}
	if s.opts.WAL != "" {
		args = append(args, "--waldir", s.opts.WAL)
	}
	return finish(s.program(ctx, "initdb", args...))
}

// finish runs a program to its end. Its error contains the output of the program.
func finish(program *exec.Cmd) error {
	out, err := program.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program.Path), err, bytes.TrimSpace(out))
	}
	return nil
}

// program returns a command for one of PostgreSQL's programs. The command runs as the server's user
// and in a session of its own, so that signals of the terminal do not reach it. Its environment has
// only PATH, locale and time zone, because a PG variable could lead the program to another server.
func (s *Server) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.opts.Bin, name), args...)
	cmd.Dir = s.opts.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user, Setsid: true}
	return cmd
}

// give makes the server's user the owner of path.
func (s *Server) give(path string) error {
	if s.user == nil {
		return nil
	}
	return os.Chown(path, int(s.user.Uid), int(s.user.Gid))
}

// DSN returns the address of the database postgres as its superuser. The address does not change
// after the first start.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", s.password, s.port)
}

// Port returns the port on 127.0.0.1, or 0 before the first start.
func (s *Server) Port() int { return s.port }

func (s *Server) Data() string { return s.opts.Data }

func (s *Server) Bin() string { return s.opts.Bin }

// Log returns the path of the server's log file.
func (s *Server) Log() string { return filepath.Join(s.opts.Dir, "postgres.log") }

// LogTail returns the last 2000 bytes of the log.
func (s *Server) LogTail() string {
	const enough = 2000 // length that suits an error message on a terminal
	log, _ := os.ReadFile(s.Log())
	return string(bytes.TrimSpace(log[max(0, len(log)-enough):]))
}

// Close stops the server with [Immediate] and removes its temporary directory. It does not remove a
// directory that the caller passed in Options.
func (s *Server) Close() error {
	err := s.Stop(Immediate)
	if s.owned {
		err = errors.Join(err, os.RemoveAll(s.opts.Dir))
	}
	return err
}
