package idemotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

var _ idem.StepObserver = (*Observer)(nil)

// TraceStep records an attempt at a step of an operation, as a metric and a span. It implements
// idem.StepObserver. The first hundred names of steps have label values of their own. Later names
// share the value "_OTHER".
func (o *Observer) TraceStep(ctx context.Context, data idem.TraceStepData) {
	if o == nil {
		return
	}
	if c := o.callIn(ctx); c != nil && !c.isLastCopy() {
		return
	}
	l := labels{
		name: o.names.tell(data.Name), step: o.stepNames.tell(data.Step), stepKind: data.Kind,
		outcome: string(data.Outcome), cause: data.Cause,
	}
	o.metrics.stepDuration.record(ctx, data.Duration, l)
	o.traceStep(ctx, l, &data)
}

// traceStep creates the span of a step that has ended. The parent is the span in ctx, which is the
// span of the call if the step belongs to a call. In a Worker there is no call, so only the
// attribute idem.operation.id connects the steps of an operation.
func (o *Observer) traceStep(ctx context.Context, l labels, data *idem.TraceStepData) {
	end, b := time.Now(), o.begun.get(l, newBeginning)
	_, span := o.tracer.Start(ctx, b.span, append(b.options[:len(b.options):len(b.options)], trace.WithTimestamp(end.Add(-data.Duration)))...)
	if span.IsRecording() {
		span.SetAttributes(operationKey.String(data.OperationID))
		if data.Outcome == idem.StepUnknown || data.Outcome == idem.StepFailed && data.Kind == "undo" {
			// A failed undo parks the operation, so it is an error. A failed call may only mean
			// that another system has refused it.
			span.SetStatus(codes.Error, string(data.Cause))
		}
	}
	span.End(trace.WithTimestamp(end))
}
