package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// Mode is the signal that stops a server.
type Mode syscall.Signal

const (
	// Fast ends all sessions, writes a checkpoint, and waits until standbys have received it.
	Fast = Mode(syscall.SIGINT)
	// Immediate ends all processes at once without a checkpoint. The next start recovers, as after
	// a crash.
	Immediate = Mode(syscall.SIGQUIT)
)

const (
	startLimit = time.Minute      // maximum time of a start, including recovery
	stopLimit  = 30 * time.Second // maximum time of a stop, including a checkpoint
	graceLimit = 2 * time.Second  // how long other processes may take to exit after the postmaster was killed
)

// errRunning is the error of Start if the server is already running.
var errRunning = errors.New("the server runs already")

// Start starts a stopped server on the same data and port as before, and returns when the server
// accepts connections. If the server does not start, the error contains the end of its log.
func (s *Server) Start(ctx context.Context) error {
	if s.Running() {
		return errRunning
	}
	if s.port != 0 {
		return s.serve(ctx)
	}
	var err error
	for range 3 { // another process can take the free port before postgres binds it
		if s.port, err = FreePort(); err != nil {
			return err
		}
		if err = s.serve(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// serve starts postgres and waits until it is ready. postgres listens on the loopback interface
// only. It has no Unix socket, because the path of a socket has a short maximum length.
func (s *Server) serve(ctx context.Context) error {
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	args := []string{"-D", s.opts.Data}
	for _, assignment := range s.opts.Settings {
		args = append(args, "-c", assignment)
	}
	args = append(args, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", strconv.Itoa(s.port))
	// The command is not bound to ctx, because the end of ctx would kill it. serve stops the server
	// itself if ctx ends.
	cmd := s.program(context.WithoutCancel(ctx), "postgres", args...)
	cmd.Env = append(cmd.Env, s.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// If this process dies, the kernel sends SIGQUIT. On SIGQUIT, postgres exits at once and
	// removes its shared memory.
	if s.postmaster, err = child.Start(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		s.Stop(Immediate)
		return fmt.Errorf("%w\n%s", err, s.LogTail())
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !s.ready() {
		select {
		case <-s.postmaster.Done():
			return errors.New("the server ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("the server was not ready in time: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// ready reads the state that the postmaster writes for pg_ctl: its process id in the first line and
// its state in the eighth. The process id shows that the file is not left from an earlier start.
func (s *Server) ready() bool {
	file, err := os.ReadFile(filepath.Join(s.opts.Data, "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(file), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(s.postmaster.PID()) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby"
}

// Running reports whether the postmaster is running.
func (s *Server) Running() bool {
	if s.postmaster == nil {
		return false
	}
	select {
	case <-s.postmaster.Done():
		return false
	default:
		return true
	}
}

// PID returns the process id of the postmaster, or 0 if the server is not running.
func (s *Server) PID() int {
	if !s.Running() {
		return 0
	}
	return s.postmaster.PID()
}

// Done returns a channel that is closed when the last started postmaster has ended. It panics if
// the server was never started.
func (s *Server) Done() <-chan struct{} { return s.postmaster.Done() }

// Stop stops the server and returns when it has ended. If the server does not end within 30
// seconds, Stop kills it and returns an error. Stop does nothing if the server is not running.
func (s *Server) Stop(mode Mode) error {
	if !s.Running() {
		return nil
	}
	s.postmaster.Signal(syscall.Signal(mode))
	select {
	case <-s.postmaster.Done():
		return nil
	case <-time.After(stopLimit):
		s.Kill()
		return fmt.Errorf("the server did not stop within %v and was killed", stopLimit)
	}
}

// Kill ends the postmaster with SIGKILL. The other processes of the server then exit by themselves,
// and Kill also kills the ones that have not exited after two seconds. On Linux, no process of the
// server is left when Kill returns.
func (s *Server) Kill() {
	if !s.Running() {
		return
	}
	s.postmaster.Signal(syscall.SIGSTOP) // a stopped postmaster cannot fork while its children are listed
	// SIGKILL leaves the postmaster no time to stop its children. Each child notices by itself that
	// the postmaster has ended, unless the child is stopped or busy.
	family := s.Processes()
	s.postmaster.Kill()
	deadline := time.Now().Add(graceLimit)
	for _, p := range family {
		for p.Alive() {
			if time.Now().After(deadline) {
				p.Signal(syscall.SIGKILL)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
