package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/idem-go/idem/internal/display"
)

// Observer observes the start, the events and the end of calls, for metrics, traces and logs. Its
// methods run in the goroutine of the call and must be quick. They never see a whole key, a hash or
// a response.
//
// TraceStart returns ctx or a context derived from it. The call passes this context to the other
// methods and uses it for nothing else.
//
// [LogObserver] returns an Observer for slog, and package idemotel has an Observer for
// OpenTelemetry.
type Observer interface {
	TraceStart(ctx context.Context, data TraceStartData) context.Context
	TraceEvent(ctx context.Context, data TraceEventData)
	TraceEnd(ctx context.Context, data TraceEndData)
}

// TraceStartData is what an observer learns when a call begins.
type TraceStartData struct {
	Name   string // the name given by WithName, or empty
	Scope  string
	Key    string // abridged, so that it may be logged; empty for an HTTP request without a key
	Joined bool   // the call runs in a transaction of the caller: DoTx, or Start of package operation
}

// Event is something that happens during a call.
type Event string

// The events of a call. Before its first event, a call is claiming its key.
const (
	// EventExecuting: the key is claimed, and fn is about to run.
	EventExecuting Event = "executing"

	// EventRecording: fn has returned, and its response is about to be recorded. Do records the
	// response together with COMMIT.
	EventRecording Event = "recording"

	// EventWaiting: the key is in progress, and the call begins to wait without a connection.
	EventWaiting Event = "waiting"

	// EventRetried: the whole transaction runs again, because of TraceEventData.Err.
	EventRetried Event = "retried"

	// EventOutcomeUnknown: COMMIT was not acknowledged, because of TraceEventData.Err. The call
	// reads the record to learn the outcome.
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
	Attempt int   // how many transactions of this call have begun to run fn
	Err     error // the error that led to the event, if any
	Cause   Cause // the kind of Err
}

// Outcome says how a call ended.
type Outcome string

// The outcomes of a call.
const (
	OutcomeExecuted   Outcome = "executed"    // fn ran in this call and its effect is committed
	OutcomeRejected   Outcome = "rejected"    // fn ran in this call and rejected; its effect was rolled back
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
	Err         error         // the error that the call returned
	Cause       Cause         // the kind of Err
	ExecutionID string        // the id of the committed execution; empty if there is none
	Duration    time.Duration // the duration of the whole call
	Waited      time.Duration // part of Duration: the wait for the holder of the key, without a connection
	Attempts    int           // how many transactions of this call ran fn
	Age         time.Duration // for a replay, the time since the key was claimed, by the clock of the database
}

// StepObserver is an Observer that also observes the steps of operations: see package operation.
// TraceStep gets the context that TraceStart returned for the call. If a Worker resumes the
// operation, there is no call, and TraceStep gets the context of the Worker. Concurrent steps of an
// operation are reported from several goroutines.
type StepObserver interface {
	Observer
	TraceStep(ctx context.Context, data TraceStepData)
}

// TraceStepData describes an attempt at a step.
type TraceStepData struct {
	Name        string // the name of the operation
	OperationID string
	Kind        string // tx, call or undo
	Step        string // the name of the step; for an undo, the name of the step that it undoes
	Outcome     StepOutcome
	Err         error
	Cause       Cause
	Duration    time.Duration // how long the program's function ran
}

// StepOutcome says how an attempt at a step ended.
type StepOutcome string

// The outcomes of steps.
const (
	StepDone    StepOutcome = "done"    // the next commit records the step
	StepFailed  StepOutcome = "failed"  // the operation's function gets the error; a failed undo parks the operation
	StepUnknown StepOutcome = "unknown" // a call got no answer: it is repeated, its outcome queried, or a person decides
)

// Observers returns an observer that notifies each observer in list. TraceStart, TraceEvent and
// TraceStep notify them in the order of list, TraceEnd in reverse order. TraceStart of each
// observer gets the context that the observer before it has returned. A nil observer is ignored. If
// list contains no other observer, Observers returns nil.
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

// TraceStep notifies each of the two observers that is a StepObserver.
func (b observerPair) TraceStep(ctx context.Context, data TraceStepData) {
	for _, o := range []Observer{b.outer, b.inner} {
		if steps, ok := o.(StepObserver); ok {
			steps.TraceStep(ctx, data)
		}
	}
}

// trace notifies the observer of one call, if the call has an observer.
type trace struct {
	observer Observer
	context  context.Context // the context that TraceStart returned
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

// end notifies the observer of the end of the call. returned is false if the call panicked.
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
// A log line contains the name of the call, its abridged key, the execution id, by which the record
// can be found, and the names of steps. It contains neither the scope nor the text of an error,
// because both may contain personal data. In place of an error it contains the Cause. The caller of
// Do gets the error itself.
//
// The logger gets the context of the call, with the values that earlier observers have added, such
// as a span.
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

// eventLevels are the levels of the events that are logged. Other events are not logged.
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

// TraceStep logs a step of an operation. If a Worker resumes the operation, there is no call, and
// ctx has neither a name nor a key.
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
	case CauseCanceled, CauseDeadline: // the caller's context ended, which is no failure
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

// log logs a line with the attributes of the call in ctx and the attributes that the function more
// appends.
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
