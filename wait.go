package idem

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/display"
	"github.com/idem-go/idem/internal/flight"
	"github.com/idem-go/idem/internal/txn"
)

// How duplicates wait. In one process the first call for a key leads and asks the database. The
// others follow: they wait in memory and hold no connection. Across processes, a leader that finds
// its key held looks again from time to time, and holds no connection in between. All of this only
// saves work. The database decides which call executes.

// flightID identifies the calls that wait for one another. The pool is part of it, because two
// pools may lead to two databases.
type flightID struct {
	pool       *pgxpool.Pool
	source     txn.Source // if there is no pool
	scope, key string
}

var flights = flight.Group[flightID, leaderResult]{Stuck: func(id flightID) bool { return isFull(id) }}

// leaderResult is what a leader passes to its followers, so that they need not ask the database.
type leaderResult struct {
	hash     Hash // of the leader
	result   Result
	mismatch *MismatchError // the record has another hash than the leader
	ended    error          // an error of an operation that is meant for duplicates; the key is free

	// freshUntil is when the record may expire, by the clock of this process. Followers that began
	// later look for themselves: by the time they began, the record may have expired.
	freshUntil time.Time
}

// copied returns o with a copy of the response, because the caller of the leader may change its
// own.
func (o leaderResult) copied() leaderResult {
	o.result.Response = o.result.Response.clone()
	return o
}

// share returns the result of a follower with this key and hash. It reports false if o says nothing
// about that hash.
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
	begun bool // the observer was notified
}

// follow waits for the leader of f. It returns the leader's result, or flight.Leading if this call
// leads from now on. It fails when the wait is over or ctx has ended.
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

// beforeNextLook pauses before the call looks again for a key that another transaction or process
// holds. It fails when the wait is over or ctx has ended.
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

// beginFollowing is begin for a follower of f. If the observer panics, the follower leaves f.
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
	minRetryAfter = time.Second // short for a person, long for a program that polls
	maxRetryAfter = 30 * time.Second
)

// inProgress returns the error for a key that is still held. RetryAfter is as long as the wait was:
// a holder that has outlasted the wait is likely to need about as long again.
func (w *waiting) inProgress() error {
	return &InProgressError{Key: display.Key(w.key), RetryAfter: min(max(w.wait, minRetryAfter), maxRetryAfter)}
}

// pollPause is the pause between two looks for a key that another transaction or process holds.
var pollPause = txn.Pauses{Current: 4 * time.Millisecond, Limit: 200 * time.Millisecond}
