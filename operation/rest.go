package operation

import (
	"math"
	"sync"
	"time"
)

// rest knows which calls are in a long pause. When all that have not ended are, the pause frees the worker or the caller.
type rest struct {
	mu     sync.Mutex
	active int               // neither in a long pause nor at their end
	until  map[*Op]time.Time // by the Op of the call
	free   chan struct{}     // closed when the operation is left to others
	over   bool
}

func newRest(active int) *rest {
	return &rest{active: active, until: map[*Op]time.Time{}, free: make(chan struct{})}
}

// pause pauses between two attempts of a call.
func (r *rest) pause(op *Op, d time.Duration) error {
	r.mu.Lock()
	r.until[op] = time.Now().Add(d)
	r.active--
	r.look()
	r.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.free:
	case <-op.ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over && op.ctx.Err() == nil {
		return op.halt(suspended, nil)
	}
	delete(r.until, op)
	r.active++
	if op.ctx.Err() != nil {
		return op.interrupted()
	}
	return nil
}

// end notes that a call has ended.
func (r *rest) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
	r.look()
}

// look frees the worker or the caller if no call is under way, and none will be soon.
func (r *rest) look() {
	if r.over || r.active > 0 || len(r.until) == 0 {
		return
	}
	for _, until := range r.until {
		if time.Until(until) < longPause-time.Second/10 {
			return
		}
	}
	r.over = true
	close(r.free)
}

// left is how long it is until the first of the pauses is over.
func (r *rest) left() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := time.Duration(math.MaxInt64)
	for _, until := range r.until {
		first = min(first, time.Until(until))
	}
	return max(0, first)
}
