package inbox

import "strings"

// Trace is what a message carries of the trace that it belongs to: its headers traceparent and tracestate, as the W3C defines them.
type Trace struct{ Parent, State string }

// traceOf returns the trace of a message, if it carries one. Brokers change the case of headers.
func traceOf(m *Message) (t Trace, ok bool) {
	for name, value := range m.Headers {
		switch {
		case strings.EqualFold(name, "traceparent"):
			t.Parent = value
		case strings.EqualFold(name, "tracestate"):
			t.State = value
		}
	}
	return t, t.Parent != ""
}
