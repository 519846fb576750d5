package txn

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pauses grow by a factor of two up to a limit, and are drawn at random from their upper half, so that those who wait for
// the same thing do not ask at the same time.
type Pauses struct{ Current, Limit time.Duration }

// RetryPause is the pause before a transaction is run again.
var RetryPause = Pauses{Current: 2 * time.Millisecond, Limit: 100 * time.Millisecond}

// Next returns the next pause.
func (p *Pauses) Next() time.Duration {
	pause := p.Current/2 + rand.N(p.Current/2)
	p.Current = min(2*p.Current, p.Limit)
	return pause
}

// Sleep returns the error of the context if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
