package workload

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/purge"
)

// startPurging purges, as every process of a service does, until ctx ends or stop is called, which waits for the end of it.
// What goes wrong with it is no concern of the callers; what it does wrong, the ledger finds.
func startPurging(ctx context.Context, c *Config) (stop func(), err error) {
	p, err := openPool(context.Background(), c, 2, 1)
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

func run(ctx context.Context, p *pool) { _ = purge.Run(ctx, p.Pool, purging) }

// interrupt now and then takes the sweep away from whoever is at it: a run that was killed would keep it for a while, and one
// that was not finds out that it has lost it.
func interrupt(ctx context.Context, p *pool) {
	for ctx.Err() == nil {
		if rand.IntN(8) == 0 {
			_, _ = p.Exec(ctx, "update idem.sweeps set sweeper = null")
		}
		_, _ = purge.Once(ctx, p.Pool, purging)
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(50 * time.Millisecond)):
		}
	}
}
