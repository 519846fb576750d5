package idem

import (
	"context"
	"errors"
	"time"
)

// Observer sees what becomes of calls, for metrics, traces and logs. Its methods are called in the goroutine of the call
// and must be quick; they never see a key in full, a hash or a response. The context that TraceStart returns is handed to
// the other two and, beyond that, used for nothing.
type Observer interface {
	TraceStart(ctx context.Context, data TraceStartData) context.Context
	TraceEvent(ctx context.Context, data TraceEventData)
	TraceEnd(ctx context.Context, data TraceEndData)
}

// TraceStartData is known when a call begins.
type TraceStartData struct {
	Scope  string
	Key    string // abridged, fit for a log
	Joined bool   // the call is a DoTx
}

// Event is something that happens to a call on its way.
type Event string

// The events of a call.
const (
	// EventWaiting: the key is in progress and the call begins to wait, holding no connection.
	EventWaiting Event = "waiting"

	// EventRetried: the whole transaction is run again, because of Err.
	EventRetried Event = "retried"

	// EventOutcomeUnknown: COMMIT was not acknowledged, because of Err; the record is asked what became of it.
	EventOutcomeUnknown Event = "outcome_unknown"

	// EventResolvedCommitted: the record answered that the COMMIT did happen.
	EventResolvedCommitted Event = "resolved_committed"

	// EventResolvedRolledBack: the record answered that the COMMIT did not, and cannot any more, happen.
	EventResolvedRolledBack Event = "resolved_rolled_back"
)

// TraceEventData tells of an event.
type TraceEventData struct {
	Event   Event
	Attempt int   // how many transactions the call has begun to run fn in
	Err     error // the cause, if there is one
}

// Outcome is how a call ended.
type Outcome string

// The outcomes of a call.
const (
	OutcomeExecuted   Outcome = "executed"    // fn ran here and its effect is committed
	OutcomeRejected   Outcome = "rejected"    // fn ran here and rejected: the response is recorded, the effect undone
	OutcomeReplayed   Outcome = "replayed"    // the response of another execution was returned
	OutcomeMismatch   Outcome = "mismatch"    // ErrMismatch
	OutcomeInProgress Outcome = "in_progress" // ErrInProgress
	OutcomeUnknown    Outcome = "unknown"     // ErrOutcomeUnknown
	OutcomeFailed     Outcome = "failed"      // any other error, of fn or of the database
	OutcomePanicked   Outcome = "panicked"    // fn panicked or ended its goroutine
)

// TraceEndData is known when a call ends.
type TraceEndData struct {
	Outcome     Outcome
	Err         error         // what the call returned
	OperationID string        // of the execution that was committed, if there is one
	Duration    time.Duration // of the whole call
	Waited      time.Duration // part of Duration: for the holder of the key, with no connection
	Attempts    int           // how many transactions fn was run in
	Age         time.Duration // at a replay: how long ago, by the database's clock, the key was claimed
}

// trace tells an observer, if there is one, of one call.
type trace struct {
	observer Observer
	context  context.Context // the observer's own
	started  time.Time
	waited   time.Duration
	attempts int
	age      time.Duration
}

func (t *trace) start(ctx context.Context, scope, key string, joined bool) {
	if t.observer != nil {
		t.context = t.observer.TraceStart(ctx, TraceStartData{Scope: scope, Key: abridged(key), Joined: joined})
	}
}

func (t *trace) event(event Event, err error) {
	if t.observer != nil {
		t.observer.TraceEvent(t.context, TraceEventData{Event: event, Attempt: t.attempts, Err: err})
	}
}

// end is deferred: ended is false if fn panicked.
func (t *trace) end(ended bool, result Result, err error) {
	if t.observer == nil {
		return
	}
	t.observer.TraceEnd(t.context, TraceEndData{
		Outcome: outcomeOf(ended, result, err), Err: err, OperationID: result.OperationID,
		Duration: time.Since(t.started), Waited: t.waited, Attempts: t.attempts, Age: t.age,
	})
}

func outcomeOf(ended bool, result Result, err error) Outcome {
	switch {
	case !ended:
		return OutcomePanicked
	case errors.Is(err, ErrMismatch):
		return OutcomeMismatch
	case errors.Is(err, ErrInProgress):
		return OutcomeInProgress
	case errors.Is(err, ErrOutcomeUnknown):
		return OutcomeUnknown
	case err != nil:
		return OutcomeFailed
	case result.Replayed:
		return OutcomeReplayed
	case result.Rejected:
		return OutcomeRejected
	}
	return OutcomeExecuted
}
