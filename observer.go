package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/idem-go/idem/internal/display"
)

// Observer observes how calls end, for metrics, traces and logs. Its methods are called in the
// goroutine of the call and must be quick. They never see a whole key, a hash or a response.
//
// TraceStart returns the context it was given or one derived from it. That context is passed to the
// other two methods and used for nothing else.
//
// [LogObserver] returns one, and package idemotel has one for OpenTelemetry.
type Observer interface {
	TraceStart(ctx context.Context, data TraceStartData) context.Context
	TraceEvent(ctx context.Context, data TraceEventData)
	TraceEnd(ctx context.Context, data TraceEndData)
}

// TraceStartData is what an observer learns when a call begins.
type TraceStartData struct {
	Name   string // given by WithName, or empty
	Scope  string
	Key    string // abridged, fit for a log; empty for a request without a key, which idemhttp may let through
	Joined bool   // the call is a DoTx
}

// Event is something that happens in the course of a call.
type Event string

// The events of a call. Until the first of them, the key is being claimed.
const (
	// EventExecuting: the key is claimed, and fn is about to run.
	EventExecuting Event = "executing"

	// EventRecording: fn has returned. Its response is about to be recorded, by Do together with
	// COMMIT.
	EventRecording Event = "recording"

	// EventWaiting: the key is in progress, and the call begins to wait without a connection.
	EventWaiting Event = "waiting"

	// EventRetried: the whole transaction runs again, because of Err.
	EventRetried Event = "retried"

	// EventOutcomeUnknown: COMMIT was not acknowledged, because of Err. The call reads the record
	// to learn the outcome.
	EventOutcomeUnknown Event = "outcome_unknown"

	// EventResolvedCommitted: the record shows that the COMMIT happened.
	EventResolvedCommitted Event = "resolved_committed"

	// EventResolvedRolledBack: the record shows that the COMMIT did not happen and can no longer
	// happen.
	EventResolvedRolledBack Event = "resolved_rolled_back"
)

// TraceEventData describes an event.
type TraceEventData struct {
	Event   Event
	Attempt int   // the number of transactions in which fn has begun to run
	Err     error // the error that led to the event, if any
	Cause   Cause // of Err
}

// Outcome says how a call ended.
type Outcome string

// The outcomes of a call.
const (
	OutcomeExecuted   Outcome = "executed"    // fn ran here and its effect is committed
	OutcomeRejected   Outcome = "rejected"    // fn ran here and rejected: the response is recorded, the effect undone
	OutcomeReplayed   Outcome = "replayed"    // the response of another execution was returned
	OutcomeMismatch   Outcome = "mismatch"    // ErrMismatch
	OutcomeInProgress Outcome = "in_progress" // ErrInProgress
	OutcomeUnknown    Outcome = "unknown"     // ErrOutcomeUnknown
	OutcomeFailed     Outcome = "failed"      // any other error of fn or of the database
	OutcomePanicked   Outcome = "panicked"    // fn panicked or ended its goroutine
)

// TraceEndData is what an observer learns when a call ends.
type TraceEndData struct {
	Outcome     Outcome
	Err         error         // that the call returned
	Cause       Cause         // of Err
	ExecutionID string        // of the committed execution, if there is one
	Duration    time.Duration // of the whole call
	Waited      time.Duration // part of Duration: the wait for the holder of the key, without a connection
	Attempts    int           // the number of transactions in which fn ran
	Age         time.Duration // of a replay: the time since the key was claimed, by the clock of the database
}

// StepObserver is an Observer that also observes the steps of operations: see package operation.
// The context is the one that TraceStart returned for the call, or the context of the Worker, which
// makes no call. Concurrent calls of an operation are reported by several goroutines.
type StepObserver interface {
	Observer
	TraceStep(ctx context.Context, data TraceStepData)
}

// TraceStepData describes an attempt at a step.
type TraceStepData struct {
	Name        string // of the operation
	OperationID string
	Kind        string // tx, call or undo
	Step        string // the name of the step; for an undo, of the step that it undoes
	Outcome     StepOutcome
	Err         error
	Cause       Cause
	Duration    time.Duration // of the program's function
}

// StepOutcome says how an attempt at a step ended.
type StepOutcome string

// The outcomes of steps.
const (
	StepDone    StepOutcome = "done"    // the next commit records the step
	StepFailed  StepOutcome = "failed"  // the function gets the error; an undo that fails parks the operation
	StepUnknown StepOutcome = "unknown" // a call without an answer: repeated, asked about, or parked
)

// Observers returns an observer that notifies each of list. TraceStart, TraceEvent and TraceStep
// notify them in the order of list, TraceEnd in reverse order. Each gets the context that the
// observer before it has returned. A nil in list is ignored. Observers returns nil if nothing is
// left.
func Observers(list ...Observer) Observer {
	var all Observer
	for _, o := range list {
		switch {
		case o == nil:
		case all == nil:
			all = o
		default:
			all = observerPair{all, o}
		}
	}
	return all
}

type observerPair struct{ outer, inner Observer }

func (b observerPair) TraceStart(ctx context.Context, data TraceStartData) context.Context {
	return b.inner.TraceStart(b.outer.TraceStart(ctx, data), data)
}

func (b observerPair) TraceEvent(ctx context.Context, data TraceEventData) {
	b.outer.TraceEvent(ctx, data)
	b.inner.TraceEvent(ctx, data)
}

func (b observerPair) TraceEnd(ctx context.Context, data TraceEndData) {
	b.inner.TraceEnd(ctx, data)
	b.outer.TraceEnd(ctx, data)
}

// TraceStep notifies those of the two that observe steps.
func (b observerPair) TraceStep(ctx context.Context, data TraceStepData) {
	for _, o := range []Observer{b.outer, b.inner} {
		if steps, ok := o.(StepObserver); ok {
			steps.TraceStep(ctx, data)
		}
	}
}

// trace notifies the observer of one call, if there is one.
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
		t.context = t.observer.TraceStart(ctx, TraceStartData{Name: name, Scope: scope, Key: display.Key(key), Joined: joined})
	}
}

func (t *trace) event(event Event, err error) {
	if t.observer != nil {
		t.observer.TraceEvent(t.context, TraceEventData{Event: event, Attempt: t.attempts, Err: err, Cause: CauseOf(err)})
	}
}

// end notifies the observer of the end. returned is false if the call panicked.
func (t *trace) end(returned bool, result Result, err error) {
	if t.observer == nil {
		return
	}
	t.observer.TraceEnd(t.context, TraceEndData{
		Outcome: outcomeOf(returned, result, err), Err: err, Cause: CauseOf(err), ExecutionID: result.ExecutionID,
		Duration: time.Since(t.started), Waited: t.waited, Attempts: t.attempts, Age: t.age,
	})
}

func outcomeOf(returned bool, result Result, err error) Outcome {
	switch {
	case !returned:
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

// LogObserver returns an Observer that logs how calls end. It logs to logger, or to slog.Default()
// if logger is nil:
//
//	Debug   executed; a step that is done
//	Info    replayed, rejected; run again; an unknown outcome that was resolved; the caller's
//	        context has ended; a step that failed
//	Warn    mismatch, in progress, failed; a COMMIT or a step of unknown outcome
//	Error   panicked; an outcome that stayed unknown; a recorded response that cannot be read
//
// A line has the name of the call, its key abridged, the execution id, which leads to the record,
// and the names of steps. It has neither the scope nor the text of an error, because both may
// contain personal data. For an error it has the Cause. The caller of Do has the error itself.
//
// The logger gets the context of the call with what earlier observers have added, such as a span.
func LogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

// loggedCall is the context of a call. It carries the attributes that identify the call in the log.
type loggedCall struct {
	context.Context
	attrs []slog.Attr
}

type loggedKey struct{}

func (l *loggedCall) Value(key any) any {
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
	return &loggedCall{ctx, attrs}
}

// eventLevels are the levels of the events that are logged.
var eventLevels = map[Event]slog.Level{
	EventWaiting:            slog.LevelDebug,
	EventRetried:            slog.LevelInfo,
	EventOutcomeUnknown:     slog.LevelWarn,
	EventResolvedCommitted:  slog.LevelInfo,
	EventResolvedRolledBack: slog.LevelInfo,
}

func (o logObserver) TraceEvent(ctx context.Context, data TraceEventData) {
	level, ok := eventLevels[data.Event]
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

// stepLevels are the levels of the outcomes of steps.
var stepLevels = map[StepOutcome]slog.Level{StepDone: slog.LevelDebug, StepFailed: slog.LevelInfo, StepUnknown: slog.LevelWarn}

// TraceStep logs a step of an operation. In a Worker, which makes no call, ctx has no name and no
// key.
func (o logObserver) TraceStep(ctx context.Context, data TraceStepData) {
	o.log(ctx, stepLevels[data.Outcome], "idem: step "+string(data.Outcome), func(attrs []slog.Attr) []slog.Attr {
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
	case CauseCanceled, CauseDeadline: // the caller ended the context and has the error
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

// log logs a line with the attributes of the call in ctx and those that more appends.
func (o logObserver) log(ctx context.Context, level slog.Level, message string, more func([]slog.Attr) []slog.Attr) {
	logger := o.logger
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	if call, ok := ctx.Value(loggedKey{}).(*loggedCall); ok {
		attrs = append(attrs, call.attrs...)
	}
	logger.LogAttrs(ctx, level, message, more(attrs)...)
}
