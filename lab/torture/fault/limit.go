package fault

import (
	"context"
	"errors"
	"time"
)

// limits bound one fault: act is the limit of the injection, and heal is the additional time to
// repair what it broke. The repair continues after the context of the injection has ended.
type limits struct{ act, heal time.Duration }

const healLimit = 60 * time.Second // enough for the crash recovery of a server

var (
	// The longest fault of the main leg takes 9 s. An act of a leg includes the start of a standby.
	injectLimits = limits{act: 30 * time.Second, heal: healLimit}
	actLimits    = limits{act: 2 * time.Minute, heal: healLimit}
)

func (l limits) total() time.Duration { return l.act + l.heal }

// errHung is the error of a fault that did not return in time, although its context had ended. Its
// goroutine is abandoned.
var errHung = errors.New("it hangs, and was given up")

// bound calls f with a context that ends after l.act, and returns the error of f. If f does not
// return within l.act + l.heal, bound returns errHung and leaves f running.
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
