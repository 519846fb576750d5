package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/idem-go/idem/internal/abridge"
)

// Observer sees how calls end, for metrics, traces and logs. Its methods are called in the goroutine of the call
// and must be quick; they never see a key in full, a hash or a response. The context that TraceStart returns, which is the one
// it was given or made from it, is handed to the other two and, beyond that, used for nothing.
//
// [LogObserver] is one, and package idemotel has one for OpenTelemetry.
type Observer interface {
	TraceStart(ctx context.Context, data TraceStartData) context.Context
	TraceEvent(ctx context.Context, data TraceEventData)
	TraceEnd(ctx context.Context, data TraceEndData)
}

// TraceStartData is known when a call begins.
type TraceStartData struct {
	Name   string // given by WithName, or empty
	Scope  string
	Key    string // abridged, fit for a log; empty for a request without one, as idemhttp may let through
	Joined bool   // the call is a DoTx
}

// Event is something that happens to a call on its way.
type Event string

// The events of a call. Until the first of them, the key is being claimed.
const (
	// EventExecuting: the key is claimed, and fn is about to run.
	EventExecuting Event = "executing"

	// EventRecording: fn is over. Its response is sent to be recorded, by Do together with COMMIT.
	EventRecording Event = "recording"

	// EventWaiting: the key is in progress and the call begins to wait, holding no connection.
	EventWaiting Event = "waiting"

	// EventRetried: the whole transaction is run again, because of Err.
	EventRetried Event = "retried"

	// EventOutcomeUnknown: COMMIT was not acknowledged, because of Err; the record is asked for the outcome of it.
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
	Err     error // what led to it, if it was an error
	Cause   Cause // what kind of error that is
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
	Cause       Cause         // what kind of error that is
	ExecutionID string        // of the execution that was committed, if there is one
	Duration    time.Duration // of the whole call
	Waited      time.Duration // part of Duration: for the holder of the key, with no connection
	Attempts    int           // how many transactions fn was run in
	Age         time.Duration // at a replay: how long ago, by the database's clock, the key was claimed
}

// StepObserver is an Observer that is also told of the steps that operations take: see package operation. The context is the one
// that TraceStart has returned for the call, or that of the Worker, which makes no call. Calls that an operation makes at the same time
// are told by several goroutines.
type StepObserver interface {
	Observer
	TraceStep(ctx context.Context, data TraceStepData)
}

// TraceStepData tells of a step that was taken, or of an attempt at one.
type TraceStepData struct {
	Name        string // of the operation
	OperationID string
	Kind        string // tx, call or undo
	Step        string // its name; of an undo, that of its step
	Outcome     StepOutcome
	Err         error
	Cause       Cause
	Duration    time.Duration // of what the program does in it
}

// StepOutcome is how a step, or an attempt at one, ended.
type StepOutcome string

// The outcomes of steps.
const (
	StepDone    StepOutcome = "done"    // it is on record with the next commit
	StepFailed  StepOutcome = "failed"  // with an error that the function is given, or, of an undo, that parks the operation
	StepUnknown StepOutcome = "unknown" // of a call: without an answer; it is made again, asked about, or parks the operation
)

// Observers returns an observer that tells each of these, in this order of what begins and happens, and in the opposite one of
// what ends. Each is given the context that the one before it has returned. A nil among them is left out; without any it
// returns nil.
func Observers(list ...Observer) Observer {
	var all Observer
	for _, o := range list {
		switch {
		case o == nil:
		case all == nil:
			all = o
		default:
			all = both{all, o}
		}
	}
	return all
}

// both is two observers.
type both struct{ outer, inner Observer }

func (b both) TraceStart(ctx context.Context, data TraceStartData) context.Context {
	return b.inner.TraceStart(b.outer.TraceStart(ctx, data), data)
}

func (b both) TraceEvent(ctx context.Context, data TraceEventData) {
	b.outer.TraceEvent(ctx, data)
	b.inner.TraceEvent(ctx, data)
}

func (b both) TraceEnd(ctx context.Context, data TraceEndData) {
	b.inner.TraceEnd(ctx, data)
	b.outer.TraceEnd(ctx, data)
}

// TraceStep tells those of the two that want to know.
func (b both) TraceStep(ctx context.Context, data TraceStepData) {
	for _, o := range []Observer{b.outer, b.inner} {
		if steps, ok := o.(StepObserver); ok {
			steps.TraceStep(ctx, data)
		}
	}
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

func (t *trace) start(ctx context.Context, name, scope, key string, joined bool) {
	if t.observer != nil {
		t.context = t.observer.TraceStart(ctx, TraceStartData{Name: name, Scope: scope, Key: abridge.Key(key), Joined: joined})
	}
}

func (t *trace) event(event Event, err error) {
	if t.observer != nil {
		t.observer.TraceEvent(t.context, TraceEventData{Event: event, Attempt: t.attempts, Err: err, Cause: CauseOf(err)})
	}
}

// end is deferred: ended is false if fn panicked.
func (t *trace) end(ended bool, result Result, err error) {
	if t.observer == nil {
		return
	}
	t.observer.TraceEnd(t.context, TraceEndData{
		Outcome: outcomeOf(ended, result, err), Err: err, Cause: CauseOf(err), ExecutionID: result.ExecutionID,
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

// LogObserver returns an Observer that writes to logger how calls end, or to slog.Default() if that is nil:
//
//	Debug   executed; a step of an operation that is done
//	Info    replayed, rejected; run again; a COMMIT of unknown outcome that was resolved; the caller's context has ended; a step that failed
//	Warn    mismatch, in progress, failed; a COMMIT, or a step, of unknown outcome
//	Error   panicked; an outcome that stayed unknown; a recorded response that cannot be read
//
// It writes the name of the call, its key abridged, the execution id, which leads to the record, and the names of steps. It writes neither the
// scope nor the text of an error, either of which may tell of a person: of an error it writes the Cause. The call returns it.
//
// The context that the logger is given is that of the call, with what the observers before this one have added, such as a span.
func LogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

// logged is what a call is known by in the log. It is the context of the call as well.
type logged struct {
	context.Context
	attrs []slog.Attr
}

type loggedKey struct{}

func (l *logged) Value(key any) any {
	if key == (loggedKey{}) {
		return l
	}
	return l.Context.Value(key)
}

func (logObserver) TraceStart(ctx context.Context, data TraceStartData) context.Context {
	attrs := make([]slog.Attr, 0, 3)
	if data.Name != "" {
		attrs = append(attrs, slog.String("name", data.Name))
	}
	if data.Key != "" {
		attrs = append(attrs, slog.String("key", data.Key))
	}
	if data.Joined {
		attrs = append(attrs, slog.Bool("joined", true))
	}
	return &logged{ctx, attrs}
}

// loudness is the level of each event that is logged.
var loudness = map[Event]slog.Level{
	EventWaiting:            slog.LevelDebug,
	EventRetried:            slog.LevelInfo,
	EventOutcomeUnknown:     slog.LevelWarn,
	EventResolvedCommitted:  slog.LevelInfo,
	EventResolvedRolledBack: slog.LevelInfo,
}

func (o logObserver) TraceEvent(ctx context.Context, data TraceEventData) {
	level, ok := loudness[data.Event]
	if !ok {
		return
	}
	o.log(ctx, level, "idem: call "+string(data.Event), func(attrs []slog.Attr) []slog.Attr {
		attrs = append(attrs, slog.Int("attempt", data.Attempt))
		return appendCause(attrs, data.Cause)
	})
}

func (o logObserver) TraceEnd(ctx context.Context, data TraceEndData) {
	o.log(ctx, levelOf(&data), "idem: call "+string(data.Outcome), func(attrs []slog.Attr) []slog.Attr {
		if data.ExecutionID != "" {
			attrs = append(attrs, slog.String("execution_id", data.ExecutionID))
		}
		attrs = append(attrs, slog.Duration("duration", data.Duration), slog.Int("attempts", data.Attempts))
		if data.Waited > 0 {
			attrs = append(attrs, slog.Duration("waited", data.Waited))
		}
		if data.Outcome == OutcomeReplayed {
			attrs = append(attrs, slog.Duration("age", data.Age))
		}
		return appendCause(attrs, data.Cause)
	})
}

// loudnessOfSteps is the level of each outcome of a step.
var loudnessOfSteps = map[StepOutcome]slog.Level{StepDone: slog.LevelDebug, StepFailed: slog.LevelInfo, StepUnknown: slog.LevelWarn}

// TraceStep writes of the step of an operation. That of a Worker, which makes no call, has no key.
func (o logObserver) TraceStep(ctx context.Context, data TraceStepData) {
	o.log(ctx, loudnessOfSteps[data.Outcome], "idem: step "+string(data.Outcome), func(attrs []slog.Attr) []slog.Attr {
		if len(attrs) == 0 {
			attrs = append(attrs, slog.String("name", data.Name))
		}
		attrs = append(attrs, slog.String("operation_id", data.OperationID), slog.String("step", data.Step), slog.String("kind", data.Kind),
			slog.Duration("duration", data.Duration))
		return appendCause(attrs, data.Cause)
	})
}

func levelOf(data *TraceEndData) slog.Level {
	switch data.Outcome {
	case OutcomeExecuted:
		return slog.LevelDebug
	case OutcomeReplayed, OutcomeRejected:
		return slog.LevelInfo
	case OutcomeUnknown, OutcomePanicked:
		return slog.LevelError
	}
	switch data.Cause {
	case CauseUnreadable:
		return slog.LevelError
	case CauseCanceled, CauseDeadline: // the caller's doing, who has the error
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func appendCause(attrs []slog.Attr, cause Cause) []slog.Attr {
	if cause != CauseNone {
		attrs = append(attrs, slog.String("cause", string(cause)))
	}
	return attrs
}

// log writes a line, if there is a logger.
func (o logObserver) log(ctx context.Context, level slog.Level, message string, more func([]slog.Attr) []slog.Attr) {
	logger := o.logger
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	if call, ok := ctx.Value(loggedKey{}).(*logged); ok {
		attrs = append(attrs, call.attrs...)
	}
	logger.LogAttrs(ctx, level, message, more(attrs)...)
}
