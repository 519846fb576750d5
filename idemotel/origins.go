package idemotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

const maxOrigins = 1024

// origins has the spans of the latest executions, so that a replay soon after an execution can link
// to its span.
type origins struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // the spans by execution ID
	ring  []string                     // the execution IDs in order; if the ring is full, the oldest is at next
	next  int
}

// add stores the span of an execution. If the ring is full, the oldest span is deleted.
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
