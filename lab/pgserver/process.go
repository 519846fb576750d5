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

// Mode is how a server is stopped.
type Mode syscall.Signal

const (
	// Fast ends all sessions, writes a checkpoint, and waits for standbys to have received it.
	Fast = Mode(syscall.SIGINT)
	// Immediate ends everything at once and writes nothing: the next start recovers, as after a crash.
	Immediate = Mode(syscall.SIGQUIT)
)

const (
	startLimit = time.Minute      // recovery included
	stopLimit  = 30 * time.Second // a checkpoint included
	graceLimit = 2 * time.Second  // for processes whose postmaster was killed
)

// errRunning is the answer to a second start.
var errRunning = errors.New("the server runs already")

// Start starts a server that does not run, on the same data and port as before, and returns when it takes connections.
// If it does not get that far, the end of its log is in the error.
func (s *Server) Start(ctx context.Context) error {
	if s.Running() {
		return errRunning
	}
	if s.port != 0 {
		return s.serve(ctx)
	}
	var err error
	for range 3 { // a port that was free may be taken before postgres binds it
		if s.port, err = FreePort(); err != nil {
			return err
		}
		if err = s.serve(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// serve runs postgres on the loopback interface only, and without a socket file, whose path could be too long.
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
	// Not bound to the context: an interrupt is for the caller, who stops the server in time.
	cmd := s.program(context.WithoutCancel(ctx), "postgres", args...)
	cmd.Env = append(cmd.Env, s.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// On SIGQUIT, postgres leaves at once and takes its shared memory with it.
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

// ready reads what the postmaster tells pg_ctl: its process id in the first line, its state in the eighth.
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

// Running tells whether the postmaster is there.
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

// PID is the process id of the postmaster, 0 if there is none.
func (s *Server) PID() int {
	if !s.Running() {
		return 0
	}
	return s.postmaster.PID()
}

// Done is closed when the postmaster that was started last is gone.
func (s *Server) Done() <-chan struct{} { return s.postmaster.Done() }

// Stop ends the server and returns when it is gone. One that does not go in time is killed, which is an error. To stop
// a server that does not run does nothing.
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

// Kill ends the postmaster by SIGKILL. Its other processes find out by themselves, and those that have not after two
// seconds are killed too: on Linux, none is left when Kill returns.
func (s *Server) Kill() {
	if !s.Running() {
		return
	}
	s.postmaster.Signal(syscall.SIGSTOP) // so that it forks nothing while we look
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
