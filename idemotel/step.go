package idemotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
)

// The keys of the labels of steps.
const (
	stepKey     = attribute.Key("idem.step")
	stepKindKey = attribute.Key("idem.step.kind")
)

// steps is what is told of the steps of operations.
type steps struct {
	names    names
	duration metric.Float64Histogram
	taken    cache[stepLabels, []metric.RecordOption]
}

type stepLabels struct {
	name, step, kind string
	outcome          idem.StepOutcome
	cause            idem.Cause
}

func newSteps(meter metric.Meter) (*steps, error) {
	duration, err := meter.Float64Histogram("idem.step.duration", metric.WithUnit("s"),
		metric.WithDescription("How long the steps of operations take, and each attempt at one."), metric.WithExplicitBucketBoundaries(durations...))
	return &steps{duration: duration}, err
}

var _ idem.StepObserver = (*Observer)(nil)

// TraceStep records a step of an operation. Of their names, too, the first hundred are told apart.
func (o *Observer) TraceStep(ctx context.Context, data idem.TraceStepData) {
	if o == nil || !o.steps.duration.Enabled(ctx) {
		return
	}
	labels := stepLabels{o.names.tell(data.Name), o.steps.names.tell(data.Step), data.Kind, data.Outcome, data.Cause}
	o.steps.duration.Record(ctx, data.Duration.Seconds(), o.steps.taken.get(labels, stepSet)...)
}

func stepSet(l stepLabels) []metric.RecordOption {
	return recordSet(append(named(l.name), stepKey.String(l.step), stepKindKey.String(l.kind), outcomeKey.String(string(l.outcome))), l.cause)
}
