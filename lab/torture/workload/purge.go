package workload

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/purge"
)

// startPurging purges expired records, as every process of a service does, until ctx ends or stop
// is called. stop waits for the end of the purge. Errors are ignored, because callers do not depend
// on a purge; package ledger finds what a purge deletes wrongly.
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

// interrupt purges and clears the owner of the sweep now and then. A purger that was killed would
// otherwise own the sweep for a while. A purger that is alive notices that it lost the sweep.
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
