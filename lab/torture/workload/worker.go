// Package workload is the program of a worker process. It makes many concurrent calls on few keys,
// chosen from a seed so that everything that can happen to a call does happen. It has no knowledge
// of the faults and judges nothing: it records what it did and which answers it got.
package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/lab/torture/checkout"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/messaging"
	"github.com/idem-go/idem/purge"
)

// Work runs a worker. It reads its Config from input and makes calls until SIGTERM. It exits at
// once when input is closed, because its supervisor is then gone.
func Work(input io.Reader) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	var c config.Config
	decoder := json.NewDecoder(input)
	if err := decoder.Decode(&c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	watching := make(chan struct{})
	go func() {
		close(watching)
		_, _ = io.Copy(io.Discard, input)
		os.Exit(1)
	}()
	<-watching
	before := goleak.IgnoreCurrent()
	writer, err := history.Create(c.File)
	if err != nil {
		return err
	}
	pools, err := c.Pools()
	if err != nil {
		return err
	}
	switch {
	case c.Bank != "":
		err = checkout.Work(stop, &c, pools, writer)
	case c.Broker != "":
		err = messaging.Work(stop, &c, pools, writer)
	default:
		err = work(stop, &c, pools, writer)
	}
	for _, p := range pools {
		p.Close()
	}
	// Operations and messages keep a session that shows that the process is alive. The goroutines of
	// that session outlive its last use by some seconds, so these workers do not look for leaks.
	if err == nil && c.Bank == "" && c.Broker == "" {
		exit := history.Event{At: history.Now(), Kind: history.KindExit, Op: c.Op(0)}
		if err := goleak.Find(before); err != nil {
			exit.Leaks = err.Error()
		}
		writer.Append(exit)
	}
	return errors.Join(err, writer.Close())
}

// work makes calls in several goroutines. It returns when the last call has ended.
func work(stop context.Context, c *config.Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	var made atomic.Uint32
	var callers sync.WaitGroup
	stopPurging, err := startPurging(stop, c)
	if err != nil {
		return err
	}
	for n := range c.Goroutines {
		random := rand.New(rand.NewPCG(c.Seed, uint64(c.Slot)<<32|uint64(c.Incarnation)<<16|uint64(n)))
		callers.Go(func() {
			for stop.Err() == nil {
				p := newPlan(random, c, pools, history.Now())
				next := func(p *plan) *call { return &call{plan: p, op: c.Op(made.Add(1)), history: writer} }
				make := next(p).make
				if len(p.batch) > 0 {
					var b batch
					for _, one := range p.batch {
						b = append(b, next(one))
					}
					make = append(b, next(p)).make
				}
				time.Sleep(pause(random, make()))
			}
		})
	}
	callers.Wait()
	stopPurging()
	return nil
}

// pause returns how long a caller waits before its next call. After a failure it always waits, so
// that callers do not spin while the server is down.
func pause(r *rand.Rand, outcome history.Outcome) time.Duration {
	switch {
	case outcome == history.Failed:
		return time.Duration(1+r.IntN(20)) * time.Millisecond
	case r.IntN(8) == 0:
		return time.Duration(r.IntN(2000)) * time.Microsecond
	}
	return 0
}

// startPurging purges expired records, as every process of a service does, until ctx ends or the
// returned function stop is called. stop waits for the end of the purge. Errors are ignored,
// because callers do not depend on a purge. Package ledger finds records that a purge deleted
// wrongly.
func startPurging(ctx context.Context, c *config.Config) (stop func(), err error) {
	p, err := c.Pool(2, 1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	work := run
	if c.Slot/2%2 == 1 {
		work = interrupt
	}
	go func() {
		defer close(ended)
		work(ctx, p)
	}()
	return func() { cancel(); <-ended; p.Close() }, nil
}

var purging = purge.Options{
	Every: 20 * time.Millisecond, Grace: ledger.Grace, Share: 0.5, Pages: 4, Patience: time.Second, Done: func(purge.Report, error) {},
}

func run(ctx context.Context, p *pgxpool.Pool) { _ = purge.Run(ctx, p, purging) }

// interrupt purges again and again. From time to time it first takes the shared sweep away from the
// purger that works on it. A purger that was killed would otherwise own the sweep for a while. A
// purger that is alive notices that it lost the sweep.
func interrupt(ctx context.Context, p *pgxpool.Pool) {
	for ctx.Err() == nil {
		if rand.IntN(8) == 0 {
			_, _ = p.Exec(ctx, "update idem.sweeps set sweeper = null")
		}
		_, _ = purge.Once(ctx, p, purging)
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(50 * time.Millisecond)):
		}
	}
}
