package idemotel

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// Keys of attributes that only spans have.
const (
	executionKey = attribute.Key("idem.execution.id")
	operationKey = attribute.Key("idem.operation.id")
	attemptsKey  = attribute.Key("idem.attempts")
	waitedKey    = attribute.Key("idem.waited") // in seconds
	ageKey       = attribute.Key("idem.replay.age")
)

// stages maps an event to the name of the stage that the event begins. The first stage of a call,
// the claim, begins without an event.
var stages = map[idem.Event]string{
	idem.EventWaiting:        "idem wait",
	idem.EventExecuting:      "idem fn",
	idem.EventRecording:      "idem commit",
	idem.EventRetried:        stageClaim,
	idem.EventOutcomeUnknown: "idem resolve",
}

const (
	stageClaim  = "idem claim"
	stageRecord = "idem record" // replaces "idem commit" in a DoTx, because the caller commits
)

// beginning has the name and the options for starting the span of a call or a step. All spans with
// the same labels share one beginning.
type beginning struct {
	span    string
	options []trace.SpanStartOption
}

func newBeginning(l labels) *beginning {
	b := &beginning{span: "idem", options: []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(l.attributes()...),
	}}
	if name := cmp.Or(l.stepKind, l.name); name != "" {
		b.span += " " + name
	}
	return b
}

// enter starts the span of a stage.
func (o *Observer) enter(c *call, stage string) {
	_, c.stage = o.tracer.Start(c.Context, stage)
}

// leave ends the span of the current stage, if there is one.
func (c *call) leave(cause idem.Cause) {
	if c.stage == nil {
		return
	}
	if cause != idem.CauseNone {
		c.stage.SetAttributes(causeKey.String(string(cause)))
	}
	c.stage.End()
	c.stage = nil
}

// proceed ends the current stage. It starts the next stage if the event begins one.
func (o *Observer) proceed(c *call, data *idem.TraceEventData) {
	c.leave(data.Cause)
	stage := stages[data.Event]
	if data.Event == idem.EventRecording && c.kind == kindDoTx {
		stage = stageRecord
	}
	if stage != "" {
		o.enter(c, stage)
	}
}

// finish sets the outcome of the call on its span. For an execution, it stores the span in origins.
// For a replay, it adds a link to the stored span of the execution.
func (o *Observer) finish(c *call, data *idem.TraceEndData) {
	c.leave(data.Cause)
	attrs := append(labels{outcome: string(data.Outcome), cause: data.Cause}.attributes(), attemptsKey.Int(data.Attempts))
	if data.ExecutionID != "" {
		attrs = append(attrs, executionKey.String(data.ExecutionID))
	}
	if data.Waited > 0 {
		attrs = append(attrs, waitedKey.Float64(data.Waited.Seconds()))
	}
	if data.Outcome == idem.OutcomeReplayed {
		attrs = append(attrs, ageKey.Float64(data.Age.Seconds()))
	}
	c.span.SetAttributes(attrs...)
	switch data.Outcome {
	case idem.OutcomeExecuted, idem.OutcomeRejected:
		o.origins.add(data.ExecutionID, c.span.SpanContext())
	case idem.OutcomeReplayed:
		c.span.AddLink(trace.Link{
			SpanContext: o.origins.of(data.ExecutionID),
			Attributes:  []attribute.KeyValue{executionKey.String(data.ExecutionID)},
		})
	case idem.OutcomeFailed, idem.OutcomeUnknown, idem.OutcomePanicked:
		// The other outcomes are not errors of the program. For example, a mismatch is an error of
		// the client.
		c.span.SetStatus(codes.Error, string(data.Cause))
	}
}
