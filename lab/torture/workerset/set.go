package workerset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/workload"
)

// Options configure a set.
type Options struct {
	Dir        string // directory of the histories
	Seed       uint64
	DSNs       []string // one for each slot
	Pooled     []bool   // by slot: the DSN is that of a pooler
	Prepares   bool     // the pooler supports prepared statements
	Goroutines int      // of each worker
	Keys       int
	KeyLife    time.Duration
	Ops        int    // of all workers together; 0: no limit
	Bank       string // address of the bank, for operations
	Broker     string // address of the broker, for messages
	Quiet      bool   // inject no failures
	Direct     bool   // handle messages without a broker
}

// Set is the workers of a run.
type Set struct {
	options  Options
	start    time.Duration
	slots    []*slot
	watching sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once
}

// Start starts one worker in each slot.
func Start(options Options) (*Set, error) {
	c := &Set{options: options, start: history.Now(), stopping: make(chan struct{})}
	for i, dsn := range options.DSNs {
		proxy, err := pgproxy.New(dsn)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.slots = append(c.slots, &slot{set: c, number: i, proxy: proxy, remaining: share(options.Ops, len(options.DSNs), i)})
	}
	for _, s := range c.slots {
		if err := s.launch(); err != nil {
			return nil, errors.Join(err, c.Stop(context.Background()), c.Close())
		}
		c.watching.Go(s.keep)
	}
	return c, nil
}

// share returns the part of ops for slot i of n. It returns 0, which means no limit, if ops is 0.
func share(ops, n, i int) int {
	if ops > 0 && i < ops%n {
		return ops/n + 1
	}
	return ops / n
}

// Started returns when the set was started, by the clock of package history.
func (c *Set) Started() time.Duration { return c.start }

// Len returns the number of slots.
func (c *Set) Len() int { return len(c.slots) }

// Signal sends a signal to the process in slot i.
func (c *Set) Signal(i int, sig syscall.Signal) error { return c.slots[i].signal(sig) }

// Proxy returns the proxy between the workers of slot i and the server.
func (c *Set) Proxy(i int) *pgproxy.Proxy { return c.slots[i].proxy }

// Done returns a channel that is closed when every worker has made its share of the calls.
func (c *Set) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		c.watching.Wait()
		close(done)
	}()
	return done
}

// Stop asks the workers to end and waits for them. If ctx ends first, Stop kills them and returns
// an error: a worker that does not end hangs in a call.
func (c *Set) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() { close(c.stopping) })
	var errs []error
	for _, s := range c.slots {
		_ = s.signal(syscall.SIGCONT)
		_ = s.signal(syscall.SIGTERM)
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		for _, s := range c.slots {
			if s.alive() {
				errs = append(errs, fmt.Errorf("worker %d did not end: %w", s.number, ctx.Err()))
				_ = s.signal(syscall.SIGQUIT) // prints the stacks of all goroutines
			}
		}
		<-c.Done()
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

// Histories returns the paths of the files that the workers wrote.
func (c *Set) Histories() []string {
	files, _ := filepath.Glob(filepath.Join(c.options.Dir, "worker-*.jsonl"))
	return files
}

// config returns the configuration of the next worker of a slot.
func (c *Set) config(s *slot) workload.Config {
	o := c.options
	return workload.Config{
		Slot: s.number, Incarnation: s.incarnation, Seed: o.Seed, Start: c.start,
		File: filepath.Join(o.Dir, fmt.Sprintf("worker-%d-%04d.jsonl", s.number, s.incarnation)),
		DSN:  s.proxy.DSN(), Pooled: s.number < len(o.Pooled) && o.Pooled[s.number], Prepares: o.Prepares,
		Goroutines: o.Goroutines, Keys: o.Keys, KeyLife: o.KeyLife, Ops: s.remaining, Bank: o.Bank, Broker: o.Broker, Quiet: o.Quiet, Direct: o.Direct,
	}
}
