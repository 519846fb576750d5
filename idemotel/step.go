package idemotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// Keys of the labels of steps.
const (
	stepKey     = attribute.Key("idem.step")
	stepKindKey = attribute.Key("idem.step.kind")
)

// steps holds the instruments of the steps of operations.
type steps struct {
	names    names
	duration metric.Float64Histogram
	begun    cache[stepLabels, []trace.SpanStartOption]
	taken    cache[stepLabels, []metric.RecordOption]
}

type stepLabels struct {
	name, step, kind string
	outcome          idem.StepOutcome
	cause            idem.Cause
}

func newSteps(meter metric.Meter) (*steps, error) {
	duration, err := meter.Float64Histogram("idem.step.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of attempts at steps of operations."), metric.WithExplicitBucketBoundaries(durations...))
	return &steps{duration: duration}, err
}

var _ idem.StepObserver = (*Observer)(nil)

// TraceStep records an attempt at a step of an operation, as a metric and a span. It implements
// idem.StepObserver. The first hundred names of steps are kept apart.
func (o *Observer) TraceStep(ctx context.Context, data idem.TraceStepData) {
	if o == nil {
		return
	}
	if c := o.callIn(ctx); c != nil && !c.isNews() {
		return
	}
	labels := stepLabels{o.names.tell(data.Name), o.steps.names.tell(data.Step), data.Kind, data.Outcome, data.Cause}
	if o.steps.duration.Enabled(ctx) {
		o.steps.duration.Record(ctx, data.Duration.Seconds(), o.steps.taken.get(labels, stepSet)...)
	}
	o.traceStep(ctx, labels, &data)
}

func stepSet(l stepLabels) []metric.RecordOption { return recordSet(stepAttributes(l), l.cause) }

func stepAttributes(l stepLabels) []attribute.KeyValue {
	return append(named(l.name), stepKey.String(l.step), stepKindKey.String(l.kind), outcomeKey.String(string(l.outcome)))
}

// traceStep creates the span of a step that has ended. Its parent is the span of the call, if there
// is one. A Worker makes no call: there the attribute idem.operation.id connects the steps of an
// operation.
func (o *Observer) traceStep(ctx context.Context, labels stepLabels, data *idem.TraceStepData) {
	end := time.Now()
	options := o.steps.begun.get(labels, stepBeginning)
	_, span := o.tracer.Start(ctx, "idem "+data.Kind, append(options[:len(options):len(options)], trace.WithTimestamp(end.Add(-data.Duration)))...)
	if span.IsRecording() {
		span.SetAttributes(operationKey.String(data.OperationID))
		if data.Outcome == idem.StepUnknown || data.Outcome == idem.StepFailed && data.Kind == "undo" {
			// A failed undo parks the operation, so it is an error. A failed call may be a refusal.
			span.SetStatus(codes.Error, string(data.Cause))
		}
	}
	span.End(trace.WithTimestamp(end))
}

func stepBeginning(l stepLabels) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(caused(stepAttributes(l), l.cause)...),
	}
}
