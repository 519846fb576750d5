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
	ended  chan struct{} // closed at the end of the run; result and err may be read after that
	result idem.Result
	err    error
}

// runs is the set of runs in progress, each with the function that cancels it.
type runs struct {
	mu    sync.Mutex
	stops map[*run]context.CancelFunc
}

var errGone = errors.New("idemhttp: the operation called runtime.Goexit")

// begin starts a run, which calls the function do in a new goroutine. The run does not end with
// ctx. begin returns nil if maxRunning runs are already in progress.
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

// drain waits until all runs have ended. When ctx ends, drain cancels the remaining runs, waits
// until they have returned, and returns the error of ctx.
func (rs *runs) drain(ctx context.Context) error {
	var ended error // the error of ctx, once ctx has ended
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
