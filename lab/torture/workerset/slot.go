package workerset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/config"
)

// slot runs one worker after another.
type slot struct {
	set         *Set
	number      int
	incarnation int
	proxy       *pgproxy.Proxy
	err         error // of the supervision; read after keep has returned

	mu     sync.Mutex
	worker *Worker
}

// Worker is a worker process.
type Worker struct {
	cmd    *exec.Cmd
	input  io.Closer
	stderr bytes.Buffer
}

// Launch starts a worker: this program with the argument "worker". It sends the configuration to
// the standard input and leaves that open.
func Launch(c config.Config) (*Worker, error) {
	encoded, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	w := &Worker{cmd: exec.Command(os.Args[0], "worker")}
	w.cmd.SysProcAttr = endWithParent()
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOTRACEBACK=all")
	w.cmd.Stderr = &w.stderr
	input, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	w.input = input
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = input.Write(append(encoded, '\n'))
	return w, err
}

// Wait waits for the end of the worker. killed reports that it was killed by SIGKILL, which is not
// an error.
func (w *Worker) Wait() (killed bool, err error) {
	err = w.cmd.Wait()
	w.input.Close()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL; killed {
			return true, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, &w.stderr)
	}
	return false, err
}

// Signal sends a signal to the worker.
func (w *Worker) Signal(sig syscall.Signal) error { return w.cmd.Process.Signal(sig) }

func (s *slot) launch() error {
	worker, err := Launch(s.set.config(s))
	if err != nil {
		return fmt.Errorf("worker %d: %w", s.number, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker = worker
	return nil
}

// keep replaces the worker each time it is killed by SIGKILL, until the set is stopped. Any other
// failure of a worker is an error and ends keep.
func (s *slot) keep() {
	for {
		killed, err := s.worker.Wait()
		if err != nil {
			s.err = fmt.Errorf("worker %d: %w", s.number, err)
		}
		if !killed || s.stopping() {
			return
		}
		s.incarnation++
		if s.err = s.launch(); s.err != nil {
			return
		}
		if s.stopping() { // Stop may have missed the new process
			_ = s.signal(syscall.SIGTERM)
		}
	}
}

func (s *slot) stopping() bool {
	select {
	case <-s.set.stopping:
		return true
	default:
		return false
	}
}

func (s *slot) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == nil { // it could not be started
		return os.ErrProcessDone
	}
	return s.worker.Signal(sig)
}
