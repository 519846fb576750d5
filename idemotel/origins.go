package idemotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

const maxOrigins = 1024

// origins remembers the spans of the latest executions, for the replays that follow soon.
type origins struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by execution id
	ring  []string                     // the ids, of which the one at next is the oldest once it is full
	next  int
}

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

// of returns the span of an execution, or none.
func (o *origins) of(executionID string) trace.SpanContext {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spans[executionID]
}
