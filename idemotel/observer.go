package idemotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
)

// Observer reports calls of package idem, messages that a relay publishes, and messages that a
// consumer handles. One Observer is enough for a program. An Observer is safe for concurrent use,
// and a nil *Observer does nothing.
type Observer struct {
	names, stepNames, consumers names
	metrics                     *metrics
	tracer                      trace.Tracer
	begun                       cache[labels, *beginning]
	origins                     origins
}

// New returns an observer for idem.WithObserver and for the Config of package idemhttp. If the
// observer is passed to a call several times, the call is still reported only once. New fails if an
// option is invalid or if the provider rejects an instrument.
func New(opts ...Option) (*Observer, error) {
	s, err := settle(opts)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(s.meter())
	if err != nil {
		return nil, err
	}
	return &Observer{metrics: metrics, tracer: s.tracer()}, nil
}

var _ idem.Observer = (*Observer)(nil)

// call is the state of a call in progress. It is also the context with the span of the call.
type call struct {
	context.Context
	observer   *Observer
	times      int // how many times the observer was passed to the call
	events     int // how many events the observer received, including copies
	name, kind string
	span       trace.Span
	stage      trace.Span // the span of the current stage; nil between stages, and if span is not recorded
	recording  bool
	unresolved bool // a COMMIT was not acknowledged, and its outcome is still open
}

// callKey is the context key of a call. A call may have several observers, so the key contains the
// observer.
type callKey struct{ observer *Observer }

// Value returns the call itself for the callKey of its observer. For any other key, it returns the
// value of the parent context.
func (c *call) Value(key any) any {
	if key == (callKey{c.observer}) {
		return c
	}
	return c.Context.Value(key)
}

// callIn returns the call that ctx belongs to, or nil.
func (o *Observer) callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{o}).(*call)
	return c
}

// isLastCopy reports whether the observer has to handle an event. An observer that was passed to a call
// several times receives several copies of each event, and handles only the last copy.
func (c *call) isLastCopy() bool {
	c.events++
	return c.events%c.times == 0
}

// Values of idem.kind.
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

// TraceStart starts the span of a call and the span of its first stage.
func (o *Observer) TraceStart(ctx context.Context, data idem.TraceStartData) context.Context {
	if o == nil {
		return ctx
	}
	if c := o.callIn(ctx); c != nil {
		c.times++
		return ctx
	}
	c := &call{observer: o, times: 1, name: o.names.tell(data.Name), kind: kindOf(&data)}
	beginning := o.beginning(labels{name: c.name, kind: c.kind})
	c.Context, c.span = o.tracer.Start(ctx, beginning.span, beginning.options...)
	if c.recording = c.span.IsRecording(); c.recording {
		o.enter(c, stageClaim)
	}
	return c
}

// beginning returns the cached span options of a call. For the first call with these labels, it
// also calls declare, which exports counters with the value 0.
func (o *Observer) beginning(l labels) *beginning {
	b, ok := o.begun.find(l)
	if !ok {
		b = o.begun.add(l, newBeginning(l))
		o.metrics.declare(l.name)
	}
	return b
}

// TraceEvent counts retries and COMMITs that were not acknowledged, and moves the span to the next
// stage.
func (o *Observer) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	c := o.callIn(ctx)
	if c == nil || !c.isLastCopy() {
		return
	}
	switch data.Event {
	case idem.EventRetried:
		o.metrics.retries.add(c, 1, labels{name: c.name, cause: data.Cause})
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
	o.metrics.unknown.add(c, 1, labels{name: c.name, resolution: resolution})
}

// TraceEnd records the metrics of a call and ends its span.
func (o *Observer) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	c := o.callIn(ctx)
	if c == nil || !c.isLastCopy() {
		return
	}
	// A call without a key has no record that shows whether its COMMIT has happened, so the outcome
	// stays unknown.
	if c.unresolved || c.kind == kindKeyless && data.Outcome == idem.OutcomeUnknown {
		o.resolve(c, unresolved)
	}
	o.metrics.end(c, c.name, c.kind, &data)
	if c.recording {
		o.finish(c, &data)
	}
	c.span.End()
}
