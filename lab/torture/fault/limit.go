package fault

import (
	"context"
	"errors"
	"time"
)

// limits bound what is done to a cluster: how long it may take by itself, and how long it may then take to set right
// what it has done, which goes on when the time for the act is over.
type limits struct{ act, heal time.Duration }

const healLimit = 60 * time.Second // for a recovery

var (
	injectLimits = limits{act: 30 * time.Second, heal: healLimit} // the longest fault of the main leg is to last 9 s
	actLimits    = limits{act: 2 * time.Minute, heal: healLimit}  // a new standby included
)

func (l limits) total() time.Duration { return l.act + l.heal }

// errHung is the error of what did not end, not even when its context had. It is left behind.
var errHung = errors.New("it hangs, and was given up")

// bound calls f with a context that ends when the time for the act is over, and returns when f does, at the latest when
// all of its time is over.
func (l limits) bound(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.act)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	limit := time.NewTimer(l.total())
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return errHung
	}
}
