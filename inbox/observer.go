package inbox

import (
	"context"
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
