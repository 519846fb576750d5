// Package workerset supervises the worker processes of a run. It replaces a killed worker at once
// by another process in the same slot, which writes a history file of its own. Each slot has a
// proxy in front of the server. The proxy outlives the workers.
package workerset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
)

// Options configure a set.
type Options struct {
	Dir    string        // directory of the histories
	Worker config.Config // common to all workers; the set fills in what differs
	DSNs   []string      // one for each slot
	Pooled []bool        // whether the DSN of a slot is that of a pooler
}

// Set is the set of workers of a run.
type Set struct {
	options  Options
	slots    []*slot
	watching sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once
}

// Start starts one worker in each slot.
func Start(options Options) (*Set, error) {
	options.Worker.Start = history.Now()
	c := &Set{options: options, stopping: make(chan struct{})}
	for i, dsn := range options.DSNs {
		proxy, err := pgproxy.New(dsn)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.slots = append(c.slots, &slot{set: c, number: i, proxy: proxy})
	}
	for _, s := range c.slots {
		if err := s.launch(); err != nil {
			return nil, errors.Join(err, c.Stop(context.Background()), c.Close())
		}
		c.watching.Go(s.keep)
	}
	return c, nil
}

// Started returns when the set was started, by the clock of package history.
func (c *Set) Started() time.Duration { return c.options.Worker.Start }

// Len returns the number of slots.
func (c *Set) Len() int { return len(c.slots) }

// Signal sends a signal to the process in slot i.
func (c *Set) Signal(i int, sig syscall.Signal) error { return c.slots[i].signal(sig) }

// Proxy returns the proxy between the workers of slot i and the server.
func (c *Set) Proxy(i int) *pgproxy.Proxy { return c.slots[i].proxy }

// Stop asks the workers to end and waits for them. If ctx ends first, Stop kills them and returns
// an error: a worker that does not end hangs in a call.
func (c *Set) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { close(c.stopping) })
	for _, s := range c.slots {
		_ = s.signal(syscall.SIGCONT)
		_ = s.signal(syscall.SIGTERM)
	}
	done := make(chan struct{})
	go func() {
		c.watching.Wait()
		close(done)
	}()
	var errs []error
	select {
	case <-done:
	case <-ctx.Done():
		for _, s := range c.slots {
			if s.signal(syscall.SIGQUIT) == nil { // prints the stacks of all goroutines
				errs = append(errs, fmt.Errorf("worker %d did not end: %w", s.number, ctx.Err()))
			}
		}
		<-done
	}
	for _, s := range c.slots {
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

// Close closes the proxies. Stop must have been called before.
func (c *Set) Close() error {
	var errs []error
	for _, s := range c.slots {
		errs = append(errs, s.proxy.Close())
	}
	return errors.Join(errs...)
}

// config returns the configuration of the next worker of a slot.
func (c *Set) config(s *slot) config.Config {
	of := c.options.Worker
	of.Slot, of.Incarnation, of.DSN, of.Pooled = s.number, s.incarnation, s.proxy.DSN(), c.options.Pooled[s.number]
	of.File = filepath.Join(c.options.Dir, fmt.Sprintf("worker-%d-%04d.jsonl", s.number, s.incarnation))
	return of
}

// slot runs one worker process after another.
type slot struct {
	set         *Set
	number      int
	incarnation int
	proxy       *pgproxy.Proxy
	err         error // why the supervision ended; read after keep has returned

	mu     sync.Mutex
	worker *Worker
}

// Worker is a worker process. The kernel kills it when this process dies, even if the worker is
// stopped at that moment.
type Worker struct {
	*child.Process
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Launch starts a worker: this program with the argument "worker". It writes the configuration to
// the standard input of the worker, and leaves the input open.
func Launch(c config.Config) (*Worker, error) {
	encoded, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	w := &Worker{cmd: exec.Command(os.Args[0], "worker")}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOTRACEBACK=all")
	w.cmd.Stderr = &w.stderr
	input, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if w.Process, err = child.Start(w.cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	_, err = input.Write(append(encoded, '\n'))
	return w, err
}

// Wait waits for the end of the worker. killed reports that SIGKILL ended it, or a SIGTERM that
// came before it had installed its handler. In both cases the error is nil.
func (w *Worker) Wait() (killed bool, err error) {
	<-w.Done()
	state := w.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if killed = status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM; killed {
			return true, nil
		}
	}
	if !state.Success() {
		err = fmt.Errorf("%v\n%s", state, &w.stderr)
	}
	return false, err
}

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

// keep replaces the worker each time Wait reports that it was killed, until the set is stopped. Any
// other failure of a worker is an error and ends keep.
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
	if s.worker == nil { // the worker could not be started
		return os.ErrProcessDone
	}
	return s.worker.Signal(sig)
}
