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

// w3c is the propagator for messages, even if the program uses another propagator for requests. The
// reason is that package inbox reads the headers that w3c writes.
var w3c propagation.TraceContext

// Carry writes the trace context of ctx into the headers of a message. It implements
// outbox.Carrier: pass the observer to outbox.WithCarrier, and outbox.Add calls Carry.
func (o *Observer) Carry(ctx context.Context, headers map[string]string) {
	if o != nil {
		w3c.Inject(ctx, propagation.MapCarrier(headers))
	}
}

// handlerKey is the context key of the span of a handler. A call may have several observers, so the
// key contains the observer.
type handlerKey struct{ observer *Observer }

// TraceHandlerStart starts the span of a handler, with links to the spans in which its messages
// were added. If the context has no span and there is only one message, the span in which the
// message was added becomes the parent, so that its trace continues. Messages that the handler adds
// to an outbox continue the trace of the handler.
func (o *Observer) TraceHandlerStart(ctx context.Context, data inbox.TraceHandlerStartData) context.Context {
	if o == nil {
		return ctx
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(consumerKey.String(o.consumers.tell(data.Consumer))),
	}
	for _, t := range data.Traces {
		producer := w3c.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
		span := trace.SpanContextFromContext(producer)
		if !span.IsRemote() {
			continue // the headers contain no valid trace context
		}
		options = append(options, trace.WithLinks(trace.Link{SpanContext: span}))
		if data.Messages == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = producer
		}
	}
	ctx, span := o.tracer.Start(ctx, "idem handle", options...)
	return outbox.WithCarrier(context.WithValue(ctx, handlerKey{o}, span), o)
}

// TraceHandlerEnd ends the span of a handler, with an error status if the handler failed.
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
