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

// Options say what a set does.
type Options struct {
	Dir        string   // where the histories go
	Seed       uint64   //
	DSNs       []string // of the slots; as many workers as there are
	Pooled     []bool   // which of them lead to a pooler in transaction mode
	Prepares   bool     // and prepared statements work behind it
	Goroutines int      // of each worker
	Keys       int
	KeyLife    time.Duration
	Ops        int    // of all together, without limit if 0
	Bank       string // address of the bank, if they work on operations
	Broker     string // address of the broker, if they work on messages
	Quiet      bool   // they do as on an ordinary day
	Direct     bool   // messages have their effects without a broker
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

// Start starts the workers.
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

// share divides ops among n slots. With no limit there is nothing to divide.
func share(ops, n, i int) int {
	if ops > 0 && i < ops%n {
		return ops/n + 1
	}
	return ops / n
}

// Started is when the first worker was started, by the history's clock.
func (c *Set) Started() time.Duration { return c.start }

// Len is the number of slots.
func (c *Set) Len() int { return len(c.slots) }

// Signal sends a signal to the process that is in a slot.
func (c *Set) Signal(i int, sig syscall.Signal) error { return c.slots[i].signal(sig) }

// Proxy is what stands between the workers of a slot and the server.
func (c *Set) Proxy(i int) *pgproxy.Proxy { return c.slots[i].proxy }

// Done is closed when every worker has made its share of the calls.
func (c *Set) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		c.watching.Wait()
		close(done)
	}()
	return done
}

// Stop asks the workers to end in order, and returns when they have. If ctx ends before, they are killed, and that is an
// error: a worker that does not end hangs in a call.
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
				_ = s.signal(syscall.SIGQUIT) // its goroutines are printed
			}
		}
		<-c.Done()
	}
	for _, s := range c.slots {
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

// Close ends the proxies. The workers must have been stopped.
func (c *Set) Close() error {
	var errs []error
	for _, s := range c.slots {
		errs = append(errs, s.proxy.Close())
	}
	return errors.Join(errs...)
}

// Histories are the files that the workers have written.
func (c *Set) Histories() []string {
	files, _ := filepath.Glob(filepath.Join(c.options.Dir, "worker-*.jsonl"))
	return files
}

// config is for the next worker of a slot.
func (c *Set) config(s *slot) workload.Config {
	o := c.options
	return workload.Config{
		Slot: s.number, Incarnation: s.incarnation, Seed: o.Seed, Start: c.start,
		File: filepath.Join(o.Dir, fmt.Sprintf("worker-%d-%04d.jsonl", s.number, s.incarnation)),
		DSN:  s.proxy.DSN(), Pooled: s.number < len(o.Pooled) && o.Pooled[s.number], Prepares: o.Prepares,
		Goroutines: o.Goroutines, Keys: o.Keys, KeyLife: o.KeyLife, Ops: s.remaining, Bank: o.Bank, Broker: o.Broker, Quiet: o.Quiet, Direct: o.Direct,
	}
}
