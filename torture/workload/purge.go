package workload

import (
	"context"
	"time"

	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/torture/ledger"
)

// purgeUntil purges, as every process of a service does, until ctx ends. What goes wrong with it is no concern of the
// callers; what it does wrong, the ledger finds.
func purgeUntil(ctx context.Context, p *pool) {
	_ = purge.Run(ctx, p.Pool, purge.Options{
		Every: 20 * time.Millisecond, Grace: ledger.Grace, Share: 0.5, Pages: 4, Patience: time.Second,
		Done: func(purge.Report, error) {},
	})
}
