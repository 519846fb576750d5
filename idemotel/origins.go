package idemotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

const maxOrigins = 1024

// origins maps the latest executions to their spans, for links from replays that soon follow.
type origins struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by execution ID
	ring  []string                     // execution IDs; once full, the one at next is the oldest
	next  int
}

// add stores the span of an execution and forgets the oldest one.
func (o *origins) add(executionID string, span trace.SpanContext) {
	if executionID == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spans == nil {
		o.spans, o.ring = make(map[string]trace.SpanContext, maxOrigins), make([]string, maxOrigins)
	}
	delete(o.spans, o.ring[o.next])
	o.ring[o.next], o.spans[executionID] = executionID, span
	o.next = (o.next + 1) % maxOrigins
}

// of returns the span of an execution, or the zero SpanContext if it is not known.
func (o *origins) of(executionID string) trace.SpanContext {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spans[executionID]
}
