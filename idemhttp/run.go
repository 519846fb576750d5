package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/idem-go/idem"
)

// run is one call of an operation, which may outlast its request.
type run struct {
	ended  chan struct{} // closed at its end; what follows is known then
	result idem.Result
	err    error
}

// runs are those that are under way.
type runs struct {
	mu    sync.Mutex
	stops map[*run]context.CancelFunc
}

var errGone = errors.New("idemhttp: the operation has ended its goroutine")

// begin starts a run that does not end with ctx, unless as many are under way as there may be: then it returns nil.
func (rs *runs) begin(ctx context.Context, most int, do func(context.Context) (idem.Result, error)) *run {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{ended: make(chan struct{}), err: errGone}
	if !rs.add(r, most, cancel) {
		cancel()
		return nil
	}
	go func() {
		defer close(r.ended)
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("idemhttp: the operation has panicked: %v\n%s", p, debug.Stack())
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

func (rs *runs) add(r *run, most int, stop context.CancelFunc) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.stops) >= most {
		return false
	}
	if rs.stops == nil {
		rs.stops = map[*run]context.CancelFunc{}
	}
	rs.stops[r] = stop
	return true
}

// drain waits until no run is under way. At the end of ctx it has them let go of their operations, and waits for that.
func (rs *runs) drain(ctx context.Context) error {
	var left error
	for {
		rs.mu.Lock()
		var next *run
		for r, stop := range rs.stops {
			next = r
			if left != nil {
				stop()
			}
		}
		rs.mu.Unlock()
		if next == nil {
			return left
		}
		if left != nil {
			<-next.ended
			continue
		}
		select {
		case <-next.ended:
		case <-ctx.Done():
			left = ctx.Err()
		}
	}
}
