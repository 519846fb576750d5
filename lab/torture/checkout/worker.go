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

// Config is what a worker is told.
type Config struct {
	Slot, Incarnation int
	Seed              uint64
	Start             time.Duration // of the run: from it follow the keys in use
	Pooled            bool
	Bank              string // its address
	Callers           int
	Keys              int
	KeyLife           time.Duration
	Calls             int // after which it ends, without limit if 0
}

// Work calls operations and works on them until stop ends.
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

// pause keeps a caller from asking without end where there is no answer.
func pause(outcome history.Outcome) {
	if !outcome.Answered() {
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	}
}

// releaseAt is the release that is deployed at a time of a run: another one every second and a half, which may be an older one. A
// process keeps the one with which it was started.
func releaseAt(seed uint64, age time.Duration) int {
	const lasts = 1500 * time.Millisecond
	return rand.New(rand.NewPCG(seed, 1<<32+uint64(max(age, 0)/lasts))).IntN(journal.Releases)
}
