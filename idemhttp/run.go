package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/idem-go/idem"
)

// run is one run of an operation. It may outlast its request.
type run struct {
	ended  chan struct{} // closed at the end of the run; the other fields may be read then
	result idem.Result
	err    error
}

// runs are the runs in progress.
type runs struct {
	mu    sync.Mutex
	stops map[*run]context.CancelFunc
}

var errGone = errors.New("idemhttp: the operation called runtime.Goexit")

// begin starts a run that does not end with ctx. It returns nil if there are already maxRunning
// runs.
func (rs *runs) begin(ctx context.Context, maxRunning int, do func(context.Context) (idem.Result, error)) *run {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{ended: make(chan struct{}), err: errGone}
	if !rs.add(r, maxRunning, cancel) {
		cancel()
		return nil
	}
	go func() {
		defer close(r.ended)
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("idemhttp: the operation panicked: %v\n%s", p, debug.Stack())
			}
			cancel()
			rs.mu.Lock()
			delete(rs.stops, r)
			rs.mu.Unlock()
		}()
		r.result, r.err = do(ctx)
	}()
	return r
}

func (rs *runs) add(r *run, maxRunning int, stop context.CancelFunc) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.stops) >= maxRunning {
		return false
	}
	if rs.stops == nil {
		rs.stops = map[*run]context.CancelFunc{}
	}
	rs.stops[r] = stop
	return true
}

// drain waits until there are no runs. When ctx ends, it cancels them, waits until they have
// returned, and returns the error of ctx.
func (rs *runs) drain(ctx context.Context) error {
	var ended error // of ctx
	for {
		rs.mu.Lock()
		var next *run
		for r, stop := range rs.stops {
			next = r
			if ended != nil {
				stop()
			}
		}
		rs.mu.Unlock()
		if next == nil {
			return ended
		}
		if ended != nil {
			<-next.ended
			continue
		}
		select {
		case <-next.ended:
		case <-ctx.Done():
			ended = ctx.Err()
		}
	}
}
