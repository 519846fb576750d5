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
	"github.com/idem-go/idem/lab/torture/history"
)

// slot runs one worker after another.
type slot struct {
	set         *Set
	number      int
	incarnation int
	remaining   int // calls to make, if Ops is set
	proxy       *pgproxy.Proxy
	err         error // of the supervision; read after keep has returned

	mu     sync.Mutex
	cmd    *exec.Cmd
	input  io.Closer
	stderr *bytes.Buffer
	file   string
}

// launch starts a worker: this program with the argument "worker". It sends the configuration to
// the standard input and leaves that open.
func (s *slot) launch() error {
	config := s.set.config(s)
	encoded, err := json.Marshal(config)
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0], "worker")
	cmd.SysProcAttr = endWithParent()
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOTRACEBACK=all")
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := input.Write(append(encoded, '\n')); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.input, s.stderr, s.file = cmd, input, stderr, config.File
	return nil
}

// keep replaces the worker each time it is killed by SIGKILL, until the set is stopped or the
// worker has made all its calls. Any other failure of a worker is an error and ends keep.
func (s *slot) keep() {
	for {
		err := s.cmd.Wait()
		s.input.Close()
		killed := wasKilled(err)
		if err != nil && !killed {
			s.err = fmt.Errorf("worker %d: %w\n%s", s.number, err, s.stderr)
		}
		if !killed || s.stopping() || !s.count() {
			return
		}
		s.incarnation++
		if err := s.launch(); err != nil {
			s.err = fmt.Errorf("worker %d: %w", s.number, err)
			return
		}
		if s.stopping() { // Stop may have missed the new process
			_ = s.signal(syscall.SIGTERM)
		}
	}
}

func wasKilled(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// count subtracts the calls of the last worker from the remaining ones. It returns whether calls
// remain.
func (s *slot) count() bool {
	if s.set.options.Ops == 0 {
		return true
	}
	begun := []byte(fmt.Sprintf(`"e":"%s"`, history.KindCall))
	calls := 0
	err := history.Lines(s.file, func(line []byte) error {
		if bytes.Contains(line, begun) {
			calls++
		}
		return nil
	})
	s.remaining -= calls
	return err != nil || s.remaining > 0
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
	return s.cmd.Process.Signal(sig)
}

func (s *slot) alive() bool {
	return s.signal(0) == nil
}
