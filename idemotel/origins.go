package idemotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

const maxOrigins = 1024

// origins remembers the spans of the latest executions, for the replays that follow soon.
type origins struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by operation id
	ring  []string                     // the ids, of which the one at next is the oldest once it is full
	next  int
}

func (o *origins) add(operationID string, span trace.SpanContext) {
	if operationID == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spans == nil {
		o.spans, o.ring = make(map[string]trace.SpanContext, maxOrigins), make([]string, maxOrigins)
	}
	delete(o.spans, o.ring[o.next])
	o.ring[o.next], o.spans[operationID] = operationID, span
	o.next = (o.next + 1) % maxOrigins
}

// of returns the span of an execution, or none.
func (o *origins) of(operationID string) trace.SpanContext {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spans[operationID]
}
