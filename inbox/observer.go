package inbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// Observer is notified of each call, for metrics and logs. Its methods run in the goroutine of the
// call and must be quick. They receive no payload and no ID.
//
// [LogObserver] logs calls, and package idemotel has an Observer for OpenTelemetry.
type Observer interface {
	// TraceHandled is called at the end of each call.
	TraceHandled(ctx context.Context, data TraceHandledData)
}

// TraceHandledData describes a call.
type TraceHandledData struct {
	Consumer string
	Messages int  // number of messages in the call
	Joined   bool // the call was HandleTx

	Done, Duplicates, Retried, Died int // messages by outcome
	Mismatches                      int // dead letters because of ErrMismatch, included in Died
	Failures                        int // attempts that failed and were counted
	Hindered                        int // attempts that failed but do not count: by a lock, say, or in a probe of WithCircuit
	Paused                          int // messages that were postponed while the consumer was paused
	Runs                            int // calls of the handler, whether they were committed or not
	Transactions                    int

	Duration time.Duration
	Err      error      // the error that the call returned
	Cause    idem.Cause // the kind of Err
}

func (t *TraceHandledData) count(outcomes []Outcome) {
	for _, o := range outcomes {
		switch o.State {
		case Done:
			t.Done++
		case Duplicate:
			t.Duplicates++
		case Retry:
			t.Retried++
		case Dead:
			t.Died++
			if errors.Is(o.Err, ErrMismatch) {
				t.Mismatches++
			}
		}
	}
}

func (t *TraceHandledData) add(lane *TraceHandledData) {
	t.Failures += lane.Failures
	t.Hindered += lane.Hindered
	t.Paused += lane.Paused
	t.Runs += lane.Runs
	t.Transactions += lane.Transactions
}

// HandlerObserver is an Observer that is also notified of each run of a handler. If
// TraceHandlerStart or TraceHandlerEnd panics, the attempt fails and is counted. A panic of
// TraceHandled propagates to the caller, although the messages are handled by then.
type HandlerObserver interface {
	Observer
	// TraceHandlerStart returns the context of the handler, which is ctx or derived from ctx. See
	// Context.
	TraceHandlerStart(ctx context.Context, data TraceHandlerStartData) context.Context
	// TraceHandlerEnd receives the context that TraceHandlerStart has returned. It is called even if
	// the handler panics.
	TraceHandlerEnd(ctx context.Context, data TraceHandlerEndData)
}

// TraceHandlerStartData describes the start of a handler.
type TraceHandlerStartData struct {
	Consumer string
	Messages int     // 1, or several with Bulk
	Traces   []Trace // the traces of the messages that have one
}

// TraceHandlerEndData describes the end of a handler. The writes of the handler may still be rolled
// back.
type TraceHandlerEndData struct {
	Duration time.Duration
	Err      error
	Cause    idem.Cause
}

// Observers returns an Observer that notifies all observers of list: at the start of a handler in
// this order, and at an end in the reverse order. TraceHandlerStart of each observer receives the
// context that the previous observer has returned. Nil observers are left out. If list contains no
// other observers, Observers returns nil.
func Observers(list ...Observer) Observer {
	all := observers(slices.DeleteFunc(slices.Clone(list), func(o Observer) bool { return o == nil }))
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type observers []Observer

func (all observers) TraceHandled(ctx context.Context, data TraceHandledData) {
	for _, o := range slices.Backward(all) {
		o.TraceHandled(ctx, data)
	}
}

// handlerContext is the context of a handler with several observers. The embedded context is the
// one that the last observer has returned.
type handlerContext struct {
	context.Context
	each []context.Context // the contexts that the observers have returned
}

func (all observers) TraceHandlerStart(ctx context.Context, data TraceHandlerStartData) context.Context {
	each := make([]context.Context, len(all))
	for i, o := range all {
		if h, ok := o.(HandlerObserver); ok {
			ctx = h.TraceHandlerStart(ctx, data)
		}
		each[i] = ctx
	}
	return &handlerContext{ctx, each}
}

func (all observers) TraceHandlerEnd(ctx context.Context, data TraceHandlerEndData) {
	each := ctx.(*handlerContext).each
	for i, o := range slices.Backward(all) {
		if h, ok := o.(HandlerObserver); ok {
			h.TraceHandlerEnd(each[i], data)
		}
	}
}

// LogObserver returns an Observer that logs a line for each call to logger, or to slog.Default() if
// logger is nil:
//
//	Debug   all messages are done, duplicates, or not due
//	Info    attempts failed, whether they count or not
//	Warn    the consumer is paused, or the call returned an error
//	Error   a message became a dead letter
//
// The line has the name of the consumer, numbers, and the Cause of an error. It has no ID, no key
// and no text of an error, because these may contain personal data. The errors are in the outcomes,
// and their texts in idem.dead_letters.
func LogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) TraceHandled(ctx context.Context, data TraceHandledData) {
	logger := cmp.Or(o.logger, slog.Default())
	level := slog.LevelDebug
	switch {
	case data.Died > 0:
		level = slog.LevelError
	case data.Paused > 0, data.Err != nil:
		level = slog.LevelWarn
	case data.Failures > 0, data.Hindered > 0:
		level = slog.LevelInfo
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("consumer", data.Consumer), slog.Int("messages", data.Messages)}
	for _, counter := range []struct {
		name string
		n    int
	}{
		{"done", data.Done}, {"duplicates", data.Duplicates}, {"retried", data.Retried}, {"died", data.Died}, {"mismatches", data.Mismatches},
		{"failures", data.Failures}, {"hindered", data.Hindered}, {"paused", data.Paused},
	} {
		if counter.n > 0 {
			attrs = append(attrs, slog.Int(counter.name, counter.n))
		}
	}
	attrs = append(attrs, slog.Int("transactions", data.Transactions), slog.Duration("duration", data.Duration))
	if data.Cause != idem.CauseNone {
		attrs = append(attrs, slog.String("cause", string(data.Cause)))
	}
	logger.LogAttrs(ctx, level, "inbox: messages", attrs...)
}
