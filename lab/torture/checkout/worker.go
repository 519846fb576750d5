package checkout

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/unreliable"
	"github.com/idem-go/idem/operation"
)

// Work calls operations and executes them with a Worker until stop ends. With c.Finish it only
// finishes what other workers left.
func Work(stop context.Context, c *config.Config, writer *history.Writer) error {
	pools, err := c.Pools()
	if err != nil {
		return err
	}
	defer pools[0].Close()
	defer pools[1].Close()
	client := bank.Client{Client: unreliable.NewClient(c.Bank, c.Slot)}
	s := &shop{Config: c, pools: pools, pool: pools[0], bank: client, history: writer}
	if c.Finish > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		return s.finishAll(ctx)
	}
	s.release = releaseAt(c.Seed, history.Now()-c.Start)
	s.define()
	worker := operation.WorkerConfig{Concurrency: 8, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	working, cancel := context.WithCancel(stop)
	go func() { ended <- operation.NewWorker(s.pool, worker, s.checkout, s.part).Run(working) }()
	var full atomic.Bool
	go s.watch(working, &full)
	var callers sync.WaitGroup
	for range c.Goroutines {
		callers.Go(func() {
			for stop.Err() == nil {
				if full.Load() {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				pause(s.call())
			}
		})
	}
	callers.Wait()
	cancel()
	err = <-ended
	s.note(journal.Event{Kind: journal.KindExit, Op: c.Op(0)})
	return err
}

// watch sets full while so many operations are running that callers must not begin new ones. With a
// longer queue an operation would wait for its turn for so long that the limits of the audit would
// not fit. While the database does not answer, the last count stays valid.
func (s *shop) watch(ctx context.Context, full *atomic.Bool) {
	const most = 100
	const look = "SELECT count(*) FROM (SELECT FROM idem.operations WHERE state = 'running' AND kind <> 'child' LIMIT $1) AS o"
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		var running int
		if err := s.pool.QueryRow(bounded, look, most).Scan(&running); err == nil {
			full.Store(running >= most)
		}
		cancel()
		time.Sleep(200 * time.Millisecond)
	}
}

// pause delays a caller after a call without an answer, so that it does not spin.
func pause(answered bool) {
	if !answered {
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	}
}

// releaseAt returns the release that is deployed at the given age of a run. Another release,
// possibly an older one, is deployed every 1.5 s. A process keeps the release with which it
// started.
func releaseAt(seed uint64, age time.Duration) int {
	const lasts = 1500 * time.Millisecond
	return rand.New(rand.NewPCG(seed, 1<<32+uint64(max(age, 0)/lasts))).IntN(journal.Releases)
}
