package inbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem"
)

// Observer sees how messages end, for metrics and logs. Its methods are called in the goroutine of the call and must be
// quick. They never see an id in full or a payload.
//
// [LogObserver] is one, and package idemotel has one for OpenTelemetry.
type Observer interface {
	// TraceHandled is told of each call when it is over.
	TraceHandled(ctx context.Context, data TraceHandledData)
}

// TraceHandledData tells of a call.
type TraceHandledData struct {
	Consumer string
	Messages int // that it was given
	Joined   bool

	Done, Duplicates, Retried, Died int // the outcomes
	Mismatches                      int // of those that died
	Failures                        int // attempts that were counted
	Hindered                        int // attempts that something else has hindered, or that were made to see whether anything goes; not counted
	Paused                          int // messages that were put off because the consumer pauses: see WithCircuit
	Runs                            int // of the handler, committed or not
	Transactions                    int

	Duration time.Duration
	Err      error      // what the call returned
	Cause    idem.Cause // what kind of error that is
}

// HandlerObserver is an Observer that is also told of each run of a handler. If it panics, the handler has failed, and that counts. A
// panic of TraceHandled is one of the call, whose messages are handled by then.
type HandlerObserver interface {
	Observer
	// TraceHandlerStart returns the context of the handler, which is the one it was given or made from it: see Context.
	TraceHandlerStart(ctx context.Context, data TraceHandlerStartData) context.Context
	// TraceHandlerEnd is given that context. It is called in the goroutine of the handler, also if that panics.
	TraceHandlerEnd(ctx context.Context, data TraceHandlerEndData)
}

// TraceHandlerStartData is known when a handler begins.
type TraceHandlerStartData struct {
	Consumer string
	Messages int     // one, but for Bulk
	Traces   []Trace // of those that carry one
}

// TraceHandlerEndData is known when a handler ends. What it has done may be rolled back all the same.
type TraceHandlerEndData struct {
	Duration time.Duration
	Err      error
	Cause    idem.Cause
}

// Observers returns an observer that tells each of these, in this order of what begins, and in the opposite one of what ends. Each is
// given the context that the one before it has returned. A nil among them is left out; without any it returns nil.
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

func (b both) TraceHandled(ctx context.Context, data TraceHandledData) {
	b.inner.TraceHandled(ctx, data)
	b.outer.TraceHandled(ctx, data)
}

// handlers is what an observer is told of a handler: the contexts that the two have returned.
type handlers struct {
	context.Context
	outer context.Context
}

func (b both) TraceHandlerStart(ctx context.Context, data TraceHandlerStartData) context.Context {
	outer := ctx
	if o, ok := b.outer.(HandlerObserver); ok {
		outer = o.TraceHandlerStart(ctx, data)
	}
	inner := outer
	if o, ok := b.inner.(HandlerObserver); ok {
		inner = o.TraceHandlerStart(outer, data)
	}
	return &handlers{Context: inner, outer: outer}
}

func (b both) TraceHandlerEnd(ctx context.Context, data TraceHandlerEndData) {
	h := ctx.(*handlers)
	if o, ok := b.inner.(HandlerObserver); ok {
		o.TraceHandlerEnd(h.Context, data)
	}
	if o, ok := b.outer.(HandlerObserver); ok {
		o.TraceHandlerEnd(h.outer, data)
	}
}

// LogObserver returns an Observer that writes to logger how messages end, or to slog.Default() if that is nil, a line for each
// call:
//
//	Debug   all of them are done, duplicates, or not due
//	Info    attempts have failed, or were hindered
//	Warn    the consumer pauses; the call has returned an error
//	Error   a message has become a dead letter
//
// It writes the name of the consumer and figures. It writes no id, no key, and not the text of an error, which may tell of a person:
// of an error it writes the Cause. The outcomes have the errors, and idem.dead_letters their text.
func LogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) TraceHandled(ctx context.Context, data TraceHandledData) {
	logger := o.logger
	if logger == nil {
		logger = slog.Default()
	}
	level := levelOf(&data)
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("consumer", data.Consumer), slog.Int("messages", data.Messages)}
	for _, figure := range []struct {
		name string
		n    int
	}{
		{"done", data.Done}, {"duplicates", data.Duplicates}, {"retried", data.Retried}, {"died", data.Died}, {"mismatches", data.Mismatches},
		{"failures", data.Failures}, {"hindered", data.Hindered}, {"paused", data.Paused},
	} {
		if figure.n > 0 {
			attrs = append(attrs, slog.Int(figure.name, figure.n))
		}
	}
	attrs = append(attrs, slog.Int("transactions", data.Transactions), slog.Duration("duration", data.Duration))
	if data.Cause != idem.CauseNone {
		attrs = append(attrs, slog.String("cause", string(data.Cause)))
	}
	logger.LogAttrs(ctx, level, "inbox: messages", attrs...)
}

func levelOf(data *TraceHandledData) slog.Level {
	switch {
	case data.Died > 0:
		return slog.LevelError
	case data.Paused > 0, data.Err != nil:
		return slog.LevelWarn
	case data.Failures > 0, data.Hindered > 0:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
