// Package workload is the program of a worker process. It makes many concurrent calls on few keys,
// chosen from a seed so that everything that can happen to a call does happen. It knows nothing of
// the faults and does not judge. It records what it did and which answers it got.
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

	"go.uber.org/goleak"

	"github.com/idem-go/idem/lab/torture/checkout"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/messaging"
)

// Work runs a worker. It reads its Config from input and makes calls until SIGTERM. It exits at once when input is closed, because its supervisor is then
// gone.
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
	switch {
	// The presence of a process outlives its users by some seconds, so the workers of operations and
	// messages do not look for leaked goroutines.
	case c.Bank != "":
		return errors.Join(checkout.Work(stop, &c, writer), writer.Close())
	case c.Broker != "":
		return errors.Join(messaging.Work(stop, &c, writer), writer.Close())
	}
	if err := work(stop, &c, writer); err != nil {
		return err
	}
	exit := history.Event{At: history.Now(), Kind: history.KindExit, Op: c.Op(0)}
	if err := goleak.Find(before); err != nil {
		exit.Leaks = err.Error()
	}
	writer.Append(exit)
	return writer.Close()
}

// work makes calls in several goroutines. It returns when the last call has ended and the pools are
// closed.
func work(stop context.Context, c *config.Config, writer *history.Writer) error {
	pools, err := c.Pools()
	if err != nil {
		return err
	}
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
	for _, p := range pools {
		p.Close()
	}
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
