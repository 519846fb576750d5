package idemotel

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

var _ outbox.Carrier = (*Observer)(nil)

// w3c is how messages carry a trace, whatever the program uses for its requests: it is what package inbox finds again.
var w3c propagation.TraceContext

// Carry writes the trace of a context into the headers of a message. Give the observer to outbox.WithCarrier: outbox.Add does it then.
func (o *Observer) Carry(ctx context.Context, headers map[string]string) {
	if o != nil {
		w3c.Inject(ctx, propagation.MapCarrier(headers))
	}
}

// handlerKey is that of the span of a handler in its context. A call may have several observers.
type handlerKey struct{ observer *Observer }

// TraceHandlerStart begins the span of a handler, which is linked to those in which its messages were added. If the call has no span of
// its own, that of a single message is the parent as well: then the trace goes on. What the handler adds to an outbox carries it further.
func (o *Observer) TraceHandlerStart(ctx context.Context, data inbox.TraceHandlerStartData) context.Context {
	if o == nil {
		return ctx
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(consumerKey.String(o.messages.consumers.tell(data.Consumer))),
	}
	for _, t := range data.Traces {
		producer := w3c.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
		span := trace.SpanContextFromContext(producer)
		if !span.IsRemote() {
			continue // it is no trace
		}
		options = append(options, trace.WithLinks(trace.Link{SpanContext: span}))
		if data.Messages == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = producer
		}
	}
	ctx, span := o.tracer.Start(ctx, "idem handle", options...)
	return outbox.WithCarrier(context.WithValue(ctx, handlerKey{o}, span), o)
}

// TraceHandlerEnd ends the span of a handler.
func (o *Observer) TraceHandlerEnd(ctx context.Context, data inbox.TraceHandlerEndData) {
	if o == nil {
		return
	}
	span, ok := ctx.Value(handlerKey{o}).(trace.Span)
	if !ok {
		return
	}
	if data.Cause != idem.CauseNone {
		span.SetAttributes(causeKey.String(string(data.Cause)))
		span.SetStatus(codes.Error, string(data.Cause))
	}
	span.End()
}
