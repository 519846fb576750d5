package idem

import (
	"context"
	"log/slog"
)

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
