package idem

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/flight"
	"github.com/idem-go/idem/internal/txn"
)

// How duplicates wait. In each process the first call for a key is the leader, which asks the
// database. The other calls are followers: they wait in memory and hold no connection. If another
// process holds the key, the leader tries to claim the key again from time to time, and holds no
// connection in between. All of this only saves work. The database decides which call executes.

// flightID identifies the calls that wait for one another. The pool is part of it, because two
// pools may lead to two databases.
type flightID struct {
	pool       *pgxpool.Pool
	source     txn.Source // where the connections come from if pool is nil
	scope, key string
}

var flights = flight.Group[flightID, leaderResult]{Stuck: func(id flightID) bool { return isFull(id) }}

// leaderResult is what a leader passes to its followers, so that they need not ask the database.
type leaderResult struct {
	hash     Hash // the hash of the leader's request
	result   Result
	mismatch *MismatchError // set if the leader, the call that asked the database, got ErrMismatch
	ended    error          // the error of a failed operation, or nil: all waiting calls return this error

	// freshUntil is when the record may expire, by the clock of this process. A follower that began
	// after freshUntil does not use the result, because the record may have expired before the
	// follower began.
	freshUntil time.Time
}

// copied returns o with a copy of the response, because the leader's caller may modify the
// original.
func (o leaderResult) copied() leaderResult {
	o.result.Response = o.result.Response.clone()
	return o
}

// share returns the result of a call that has waited for the leader and has the given hash. The
// result is the leader's, or an ErrMismatch if the leader's request has a different hash. If the
// hashes differ and the leader got an error, share reports false, because that error does not apply
// to the call.
func (o *leaderResult) share(key string, hash Hash) (result Result, err error, ok bool) {
	switch {
	case (o.mismatch != nil || o.ended != nil) && o.hash != hash:
		return Result{}, nil, false
	case o.ended != nil:
		return Result{}, o.ended, true
	case o.mismatch != nil:
		return Result{}, o.mismatch, true
	case o.hash != hash:
		return Result{}, &MismatchError{Key: display.Key(key), CreatedAt: o.result.CreatedAt}, true
	}
	result = o.result
	result.Response = result.Response.clone()
	result.Replayed = true
	return result, nil, true
}

// waiting is the part of a call that waits for other calls.
type waiting struct {
	key   string
	wait  time.Duration
	trace *trace
	begun bool // the observer was notified of EventWaiting
}

// follow waits for the leader of f. It returns the leader's result, or flight.Leading if this call
// leads from now on. It fails if the wait time of the call has passed or ctx has ended.
func (w *waiting) follow(ctx context.Context, f *flight.Flight[flightID, leaderResult]) (leaderResult, flight.Ending, error) {
	remaining := w.wait - time.Since(w.trace.started)
	if remaining > 0 {
		w.beginFollowing(f)
	}
	since := time.Now()
	o, ending := f.Wait(ctx, remaining)
	w.trace.waited += time.Since(since)
	switch ending {
	case flight.Answered, flight.Leading:
		return o, ending, nil
	case flight.Left:
		return o, ending, ctx.Err()
	case flight.Busy:
	}
	return o, ending, w.inProgress()
}

// isFull reports whether all connections are in use.
func isFull(id flightID) bool {
	if id.pool == nil {
		return id.source.IsFull()
	}
	stat := id.pool.Stat()
	return stat.AcquiredConns() >= stat.MaxConns()
}

// beforeNextLook pauses before the call tries again to claim a key that another transaction or
// process holds. It fails if the wait time of the call has passed or ctx has ended.
func (w *waiting) beforeNextLook(ctx context.Context, pause time.Duration) error {
	remaining := w.wait - time.Since(w.trace.started)
	if remaining <= 0 {
		return w.inProgress()
	}
	w.begin()
	pause = min(pause, remaining)
	w.trace.waited += pause
	return txn.Sleep(ctx, pause)
}

// beginFollowing calls begin for a follower of f. If the observer panics, beginFollowing removes
// the follower from the flight.
func (w *waiting) beginFollowing(f *flight.Flight[flightID, leaderResult]) {
	begun := false
	defer func() {
		if !begun {
			f.Leave()
		}
	}()
	w.begin()
	begun = true
}

func (w *waiting) begin() {
	if !w.begun {
		w.begun = true
		w.trace.event(EventWaiting, nil)
	}
}

// The limits of InProgressError.RetryAfter.
const (
	minRetryAfter = time.Second // short for a person who waits, and long enough for a program that polls
	maxRetryAfter = 30 * time.Second
)

// inProgress returns the error for a key that is still in progress. RetryAfter is as long as the
// wait was, because a call that has outlasted the wait probably needs about as long again.
func (w *waiting) inProgress() error {
	return &InProgressError{Key: display.Key(w.key), RetryAfter: min(max(w.wait, minRetryAfter), maxRetryAfter)}
}

// pollPause is the pause between two attempts to claim a key that another transaction or process
// holds.
var pollPause = txn.Pauses{Current: 4 * time.Millisecond, Limit: 200 * time.Millisecond}
