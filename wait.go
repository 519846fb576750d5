package idem

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What a duplicate does meanwhile. In one process the first call for a key leads, and the others wait in memory for what
// it finds, holding no connection. Across processes the leader looks from time to time, holding none in between. All of
// this only saves work: who executes is decided by the database.

// flightID is what calls must have in common to wait for one another. Two pools may lead to two databases.
type flightID struct {
	pool       *pgxpool.Pool
	scope, key string
}

// flight is a key that some call of this process is seeing to.
type flight struct {
	busy, done chan struct{} // made for the first follower
	isBusy     bool          // the key is known to be in progress, here or elsewhere
	outcome    outcome       // valid once done is closed
}

// outcome is what a leader leaves to its followers, who then need not ask the database.
type outcome struct {
	shared   bool // false if the leader failed: then this is of no use to others
	hash     Hash
	result   Result
	mismatch *MismatchError // the hash is not the one of the record
}

var (
	flightsMu sync.Mutex
	flights   = map[flightID]*flight{}
)

// join returns the flight of the key. If there is none it begins own: the caller leads, and must call finish.
func join(id flightID, own *flight) (f *flight, leads bool) {
	flightsMu.Lock()
	defer flightsMu.Unlock()
	f, ok := flights[id]
	if !ok {
		flights[id] = own
		return own, true
	}
	if f.done == nil {
		f.done, f.busy = make(chan struct{}), make(chan struct{})
		if f.isBusy {
			close(f.busy)
		}
	}
	return f, false
}

// markBusy lets those who do not want to wait go.
func (f *flight) markBusy() {
	flightsMu.Lock()
	defer flightsMu.Unlock()
	if f.isBusy {
		return
	}
	f.isBusy = true
	if f.busy != nil {
		close(f.busy)
	}
}

// finish ends the flight. Followers get a copy: the leader's caller may do with its response what it likes.
func (f *flight) finish(id flightID) {
	flightsMu.Lock()
	delete(flights, id)
	flightsMu.Unlock()
	if f.done != nil {
		f.outcome.result.Response = f.outcome.result.Response.clone()
		close(f.done)
	}
}

// do answers the call as the leader of its key or as a follower. A follower whose leader fails tries again: one of the
// followers will lead.
func (c *call) do(ctx context.Context) (Result, error) {
	id := flightID{pool: c.pool, scope: c.scope, key: c.key}
	for {
		f, leads := join(id, &c.flight)
		if leads {
			return c.fly(ctx, id)
		}
		if err := c.follow(ctx, f); err != nil {
			return Result{}, err
		}
		if result, err, ok := c.share(&f.outcome); ok {
			return result, err
		}
	}
}

func (c *call) fly(ctx context.Context, id flightID) (Result, error) {
	defer c.flight.finish(id) // also if fn panics
	r, err := c.lead(ctx)
	if err != nil {
		return Result{}, err
	}
	result, err := c.answer(r)
	mismatch := mismatchOf(err)
	c.flight.outcome = outcome{shared: err == nil || mismatch != nil, hash: c.hash, result: result, mismatch: mismatch}
	return result, err
}

func mismatchOf(err error) *MismatchError {
	if err == nil {
		return nil
	}
	mismatch, _ := errors.AsType[*MismatchError](err)
	return mismatch
}

// follow waits for the leader: until it is done, or the wait is over, or the context.
func (c *call) follow(ctx context.Context, f *flight) error {
	remaining := c.wait - time.Since(c.started)
	var busy <-chan struct{}
	var over <-chan time.Time
	if remaining <= 0 {
		busy = f.busy
	} else {
		c.beginWaiting()
		timer := time.NewTimer(remaining)
		defer timer.Stop()
		over = timer.C
	}
	since := time.Now()
	defer func() { c.waited += time.Since(since) }()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-busy:
	case <-over:
	}
	return c.inProgress()
}

// share turns the outcome of the leader into the answer to this call, if it is one.
func (c *call) share(o *outcome) (result Result, err error, ok bool) {
	switch {
	case !o.shared || o.mismatch != nil && o.hash != c.hash:
		return Result{}, nil, false
	case o.mismatch != nil:
		return Result{}, o.mismatch, true
	case o.hash != c.hash:
		return Result{}, &MismatchError{Key: abridged(c.key), CreatedAt: o.result.CreatedAt}, true
	}
	result = o.result
	result.Response = result.Response.clone()
	result.Replayed = true
	c.age = max(result.CompletedAt.Sub(result.CreatedAt), 0)
	return result, nil, true
}

// waitForHolder pauses between two looks at a key that is in progress elsewhere.
func (c *call) waitForHolder(ctx context.Context, pause time.Duration) error {
	c.flight.markBusy()
	remaining := c.wait - time.Since(c.started)
	if remaining <= 0 {
		return c.inProgress()
	}
	c.beginWaiting()
	pause = min(pause, remaining)
	c.waited += pause
	return sleep(ctx, pause)
}

func (c *call) beginWaiting() {
	if !c.waiting {
		c.waiting = true
		c.traceEvent(EventWaiting, nil)
	}
}

// The pauses that inProgress suggests.
const (
	minRetryAfter = time.Second // short for a person, long for a poller
	maxRetryAfter = 30 * time.Second
)

// inProgress suggests a pause as long as the wait that was in vain: a holder that has outlasted it is not about to end as a
// rule. There is no lease to sit out: the key may be free, or answered, at any moment.
func (c *call) inProgress() error {
	return &InProgressError{Key: abridged(c.key), RetryAfter: min(max(c.wait, minRetryAfter), maxRetryAfter)}
}

// pauses grow by a factor of two up to a limit, and are drawn at random from their upper half, so that those who wait for
// the same thing do not ask at the same time.
type pauses struct{ current, limit time.Duration }

var (
	pollPause  = pauses{current: 4 * time.Millisecond, limit: 200 * time.Millisecond}
	retryPause = pauses{current: 2 * time.Millisecond, limit: 100 * time.Millisecond}
)

func (p *pauses) next() time.Duration {
	pause := p.current/2 + rand.N(p.current/2)
	p.current = min(2*p.current, p.limit)
	return pause
}

// sleep returns the error of the context if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outlast returns a context that goes on for up to grace after ctx has ended.
func outlast(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if sleep(lasting, grace) == nil {
			cancel()
		}
	})
	return lasting, func() { stop(); cancel() }
}
