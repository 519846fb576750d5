package idemotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// The attributes of spans alone.
const (
	executionKey = attribute.Key("idem.execution.id")
	operationKey = attribute.Key("idem.operation.id")
	attemptsKey  = attribute.Key("idem.attempts")
	waitedKey    = attribute.Key("idem.waited") // seconds
	ageKey       = attribute.Key("idem.replay.age")
)

// The stages of a call, each a span.
const (
	stageClaim   = "idem claim"
	stageWait    = "idem wait"
	stageFn      = "idem fn"
	stageCommit  = "idem commit"
	stageRecord  = "idem record" // of a DoTx, whose COMMIT is the caller's
	stageResolve = "idem resolve"
)

// beginning is how the spans of one kind of call begin.
type beginning struct {
	span    string
	options []trace.SpanStartOption
}

type begunLabels struct{ name, kind string }

func newBeginning(l begunLabels) *beginning {
	b := &beginning{span: "idem"}
	if l.name != "" {
		b.span += " " + l.name
	}
	b.options = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(append(named(l.name), kindKey.String(l.kind))...),
	}
	return b
}

func (o *Observer) enter(c *call, stage string) {
	_, c.stage = o.tracer.Start(c.Context, stage)
}

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

// proceed ends the stage that an event ends, and begins the one that it begins.
func (o *Observer) proceed(c *call, data *idem.TraceEventData) {
	c.leave(data.Cause)
	switch data.Event {
	case idem.EventWaiting:
		o.enter(c, stageWait)
	case idem.EventExecuting:
		o.enter(c, stageFn)
	case idem.EventRecording:
		if c.kind == kindDoTx {
			o.enter(c, stageRecord)
			return
		}
		o.enter(c, stageCommit)
	case idem.EventRetried:
		o.enter(c, stageClaim)
	case idem.EventOutcomeUnknown:
		o.enter(c, stageResolve)
	}
}

// finish says on the span the outcome of the call.
func (o *Observer) finish(c *call, data *idem.TraceEndData) {
	c.leave(data.Cause)
	attrs := []attribute.KeyValue{outcomeKey.String(string(data.Outcome)), attemptsKey.Int(data.Attempts)}
	if data.ExecutionID != "" {
		attrs = append(attrs, executionKey.String(data.ExecutionID))
	}
	if data.Waited > 0 {
		attrs = append(attrs, waitedKey.Float64(data.Waited.Seconds()))
	}
	if data.Outcome == idem.OutcomeReplayed {
		attrs = append(attrs, ageKey.Float64(data.Age.Seconds()))
	}
	c.span.SetAttributes(caused(attrs, data.Cause)...)
	switch data.Outcome {
	case idem.OutcomeExecuted, idem.OutcomeRejected:
		o.origins.add(data.ExecutionID, c.span.SpanContext())
	case idem.OutcomeReplayed:
		c.span.AddLink(trace.Link{
			SpanContext: o.origins.of(data.ExecutionID),
			Attributes:  []attribute.KeyValue{executionKey.String(data.ExecutionID)},
		})
	case idem.OutcomeFailed, idem.OutcomeUnknown, idem.OutcomePanicked:
		c.span.SetStatus(codes.Error, string(data.Cause)) // not a refusal, which is the client's doing
	}
}
