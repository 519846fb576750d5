package checkout

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/memory"
	"github.com/idem-go/idem/operation"
)

// Config configures a worker.
type Config struct {
	Slot, Incarnation int
	Seed              uint64
	Start             time.Duration // start of the run; the keys in use depend on it
	Pooled            bool
	Bank              string // address of the bank
	Callers           int
	Keys              int
	KeyLife           time.Duration
	Calls             int // the number of calls after which it exits; 0: no limit
}

// Work calls operations and executes them with a Worker until stop ends.
func Work(stop context.Context, c Config, pools []*pgxpool.Pool, writer *history.Writer) error {
	s := &shop{slot: c.Slot, incarnation: c.Incarnation, pooled: c.Pooled, pool: pools[0], bank: bank.NewClient(c.Bank), history: writer, seed: c.Seed}
	s.release = releaseAt(c.Seed, history.Now()-c.Start)
	s.define()
	config := operation.WorkerConfig{Concurrency: 8, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	working, cancel := context.WithCancel(stop)
	go func() { ended <- operation.NewWorker(pools[0], config, s.checkout, s.part).Run(working) }()
	var left backlog
	go left.watch(working, pools[0])
	var callers sync.WaitGroup
	for range c.Callers {
		callers.Go(func() {
			a := &caller{shop: s, seed: c.Seed, start: c.Start, keys: c.Keys, life: c.KeyLife, pools: pools}
			for made := 0; stop.Err() == nil && (c.Calls == 0 || made < c.Calls/c.Callers); {
				if left.tooMuch() {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				pause(a.call())
				made++
			}
		})
	}
	callers.Wait()
	cancel()
	err := <-ended
	s.note(journal.Event{Kind: journal.KindExit, Op: history.NewOp(c.Slot, c.Incarnation, 0), Bytes: memory.Most()})
	return err
}

// pause delays a caller after a call without an answer, so that it does not spin.
func pause(outcome history.Outcome) {
	if !outcome.Answered() {
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
