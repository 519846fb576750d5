package idemotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

const instrumentation = "github.com/idem-go/idem/idemotel"

// Observer tells OpenTelemetry of calls, and of messages that a relay publishes and a consumer handles. One is enough for a program.
type Observer struct {
	names    names
	metrics  *metrics
	steps    *steps
	messages *messages
	tracer   trace.Tracer
	begun    cache[begunLabels, *beginning]
	origins  origins
}

// New returns an observer for idem.WithObserver, or for the Config of package idemhttp. One that is nil observes nothing, and
// one that a call is given several times shows it once.
func New(opts ...Option) (*Observer, error) {
	s, err := settle(opts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(s.meters.Meter(instrumentation))
	if err != nil {
		return nil, err
	}
	taken, err := newSteps(s.meters.Meter(instrumentation))
	if err != nil {
		return nil, err
	}
	told, err := newMessages(s.meters.Meter(instrumentation))
	if err != nil {
		return nil, err
	}
	return &Observer{metrics: m, steps: taken, messages: told, tracer: s.tracers.Tracer(instrumentation)}, nil
}

var _ idem.Observer = (*Observer)(nil)

// call is what is known of a call under way. It is the context of its span as well.
type call struct {
	context.Context
	observer   *Observer
	times      int // that the observer was given
	told       int // what it was told, by each of these
	name, kind string
	span       trace.Span
	stage      trace.Span // nil if the span is not recorded, and between two stages
	recording  bool
	unresolved bool // a COMMIT was not acknowledged
}

// callKey is that of the call in its context. A call may have several observers.
type callKey struct{ observer *Observer }

// Value adds the call to the context.
func (c *call) Value(key any) any {
	if key == (callKey{c.observer}) {
		return c
	}
	return c.Context.Value(key)
}

func (o *Observer) callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{o}).(*call)
	return c
}

// isNews reports whether the observer is told something for the first time.
func (c *call) isNews() bool {
	c.told++
	return c.told%c.times == 0
}

// The kinds of calls.
const (
	kindDo      = "do"
	kindDoTx    = "do_tx"
	kindKeyless = "keyless"
)

func kindOf(data *idem.TraceStartData) string {
	switch {
	case data.Joined:
		return kindDoTx
	case data.Key == "":
		return kindKeyless
	}
	return kindDo
}

// TraceStart begins the span of a call.
func (o *Observer) TraceStart(ctx context.Context, data idem.TraceStartData) context.Context {
	if o == nil {
		return ctx
	}
	if c := o.callIn(ctx); c != nil {
		c.times++
		return ctx
	}
	c := &call{observer: o, times: 1, name: o.names.tell(data.Name), kind: kindOf(&data)}
	beginning := o.beginning(begunLabels{c.name, c.kind})
	c.Context, c.span = o.tracer.Start(ctx, beginning.span, beginning.options...)
	if c.recording = c.span.IsRecording(); c.recording {
		o.enter(c, stageClaim)
	}
	return c
}

func (o *Observer) beginning(l begunLabels) *beginning {
	b, ok := o.begun.find(l)
	if !ok {
		b = o.begun.add(l, newBeginning(l))
		o.metrics.declare(l.name)
	}
	return b
}

// TraceEvent counts what is out of the ordinary, and goes from one stage of a call to the next.
func (o *Observer) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	c := o.callIn(ctx)
	if c == nil || !c.isNews() {
		return
	}
	switch data.Event {
	case idem.EventRetried:
		o.metrics.retry(c, c.name, data.Cause)
	case idem.EventOutcomeUnknown:
		c.unresolved = true
	case idem.EventResolvedCommitted:
		o.resolve(c, committed)
	case idem.EventResolvedRolledBack:
		o.resolve(c, rolledBack)
	}
	if c.recording {
		o.proceed(c, &data)
	}
}

func (o *Observer) resolve(c *call, resolution string) {
	c.unresolved = false
	o.metrics.resolve(c, c.name, resolution)
}

// TraceEnd records the outcome of a call, and ends its span.
func (o *Observer) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	c := o.callIn(ctx)
	if c == nil || !c.isNews() {
		return
	}
	if c.unresolved || c.kind == kindKeyless && data.Outcome == idem.OutcomeUnknown {
		o.resolve(c, unresolved)
	}
	o.metrics.end(c, c.name, c.kind, &data)
	if c.recording {
		o.finish(c, &data)
	}
	c.span.End()
}
