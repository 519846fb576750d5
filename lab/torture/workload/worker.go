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

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/memory"
)

// Work runs a worker. It reads its Config from input and makes calls until SIGTERM, or until it has
// made config.Ops calls. It exits at once when input is closed, because its supervisor is then
// gone.
func Work(input io.Reader) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	var config Config
	decoder := json.NewDecoder(input)
	if err := decoder.Decode(&config); err != nil {
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
	writer, err := history.Create(config.File)
	if err != nil {
		return err
	}
	switch {
	case config.Bank != "":
		return errors.Join(workOnOperations(stop, &config, writer), writer.Close())
	case config.Broker != "":
		return errors.Join(workOnMessages(stop, &config, writer), writer.Close())
	}
	if err := work(stop, &config, writer); err != nil {
		return err
	}
	exit := history.Event{
		At: history.Now(), Kind: history.KindExit, Op: history.NewOp(config.Slot, config.Incarnation, 0), Memory: memory.Most(),
	}
	if err := goleak.Find(before); err != nil {
		exit.Leaks = err.Error()
	}
	writer.Append(exit)
	return writer.Close()
}

// work makes calls in several goroutines. It returns when the last call has ended and the pools are
// closed.
func work(stop context.Context, config *Config, writer *history.Writer) error {
	pools, err := openPools(context.Background(), config)
	if err != nil {
		return err
	}
	var made atomic.Uint32
	var callers sync.WaitGroup
	stopPurging, err := startPurging(stop, config)
	if err != nil {
		return err
	}
	for n := range config.Goroutines {
		random := rand.New(rand.NewPCG(config.Seed, uint64(config.Slot)<<32|uint64(config.Incarnation)<<16|uint64(n)))
		callers.Go(func() {
			for stop.Err() == nil {
				number := made.Add(1)
				if config.Ops > 0 && int(number) > config.Ops {
					return
				}
				p := newPlan(random, config, pools, history.Now())
				make := newCall(config, p, number, writer).make
				if len(p.batch) > 0 {
					make = newBatch(config, p, &made, number, writer).make
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

// newBatch numbers the calls of a batch. It shortens the batch if config.Ops does not allow all
// calls.
func newBatch(config *Config, p *plan, made *atomic.Uint32, number uint32, writer *history.Writer) batch {
	var b batch
	for _, one := range p.batch {
		n := made.Add(1)
		if config.Ops > 0 && int(n) > config.Ops {
			break
		}
		b = append(b, newCall(config, one, n, writer))
	}
	return append(b, newCall(config, p, number, writer))
}

func newCall(config *Config, p *plan, number uint32, writer *history.Writer) *call {
	return &call{
		plan: p, op: history.NewOp(config.Slot, config.Incarnation, number), shard: history.ShardOf(p.scope, p.key), history: writer,
	}
}
