package idem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/abridge"
	"github.com/idem-go/idem/internal/flight"
	"github.com/idem-go/idem/internal/txn"
)

// What a duplicate does meanwhile. In one process the first call for a key leads, and the others wait in memory for what
// it finds, holding no connection. Across processes the leader looks from time to time, holding none in between. All of
// this only saves work: who executes is decided by the database.

// flightID is what calls must have in common to wait for one another. Two pools may lead to two databases.
type flightID struct {
	pool       *pgxpool.Pool
	source     txn.Source // if there is no pool
	scope, key string
}

var flights = flight.Group[flightID, outcome]{Stuck: func(id flightID) bool { return isFull(id) }}

// outcome is what a leader leaves to its followers, who then need not ask the database.
type outcome struct {
	hash     Hash
	result   Result
	mismatch *MismatchError // the hash is not the one of the record
	ended    error          // of a Runner, for all who have waited; the key is free

	// freshUntil is when the record may expire, by the clock of this process. The leader may have read it long before its answer
	// arrived. A call that began later looks for itself: to that call the record may be expired.
	freshUntil time.Time
}

func mismatchIn(err error) *MismatchError {
	var mismatch *MismatchError
	errors.As(err, &mismatch)
	return mismatch
}

// copied returns the outcome with a response of its own: the leader's caller may do with its response what it likes.
func (o outcome) copied() outcome {
	o.result.Response = o.result.Response.clone()
	return o
}

// share turns the outcome into the answer to a call with this hash, if it is one. A mismatch has nothing of the result.
func (o *outcome) share(key string, hash Hash) (result Result, err error, ok bool) {
	switch {
	case (o.mismatch != nil || o.ended != nil) && o.hash != hash:
		return Result{}, nil, false
	case o.ended != nil:
		return Result{}, o.ended, true
	case o.mismatch != nil:
		return Result{}, o.mismatch, true
	case o.hash != hash:
		return Result{}, &MismatchError{Key: abridge.Key(key), CreatedAt: o.result.CreatedAt}, true
	}
	result = o.result
	result.Response = result.Response.clone()
	result.Replayed = true
	return result, nil, true
}

// waiting is the time that a call spends on other calls.
type waiting struct {
	key   string
	wait  time.Duration
	trace *trace
	begun bool
}

// follow waits for the leader: until it is done or hands over, or the wait is over, or the context.
func (w *waiting) follow(ctx context.Context, f *flight.Flight[flightID, outcome]) (outcome, flight.Ending, error) {
	remaining := w.wait - time.Since(w.trace.started)
	if remaining > 0 {
		w.beginOn(f)
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

// forHolder pauses between two looks at a key that is in progress elsewhere.
func (w *waiting) forHolder(ctx context.Context, pause time.Duration) error {
	remaining := w.wait - time.Since(w.trace.started)
	if remaining <= 0 {
		return w.inProgress()
	}
	w.begin()
	pause = min(pause, remaining)
	w.trace.waited += pause
	return txn.Sleep(ctx, pause)
}

// beginOn is begin for a follower, which an observer that panics takes off its flight.
func (w *waiting) beginOn(f *flight.Flight[flightID, outcome]) {
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

// The pauses that inProgress suggests.
const (
	minRetryAfter = time.Second // short for a person, long for a poller
	maxRetryAfter = 30 * time.Second
)

// inProgress suggests a pause as long as the wait that was in vain: a holder that has outlasted it is not about to end as a
// rule. There is no lease to sit out: the key may be free, or answered, at any moment.
func (w *waiting) inProgress() error {
	return &InProgressError{Key: abridge.Key(w.key), RetryAfter: min(max(w.wait, minRetryAfter), maxRetryAfter)}
}

// pollPause is the pause between two looks at a key that is in progress elsewhere.
var pollPause = txn.Pauses{Current: 4 * time.Millisecond, Limit: 200 * time.Millisecond}
