package outbox

import (
	"context"
	"maps"
)

// Carrier writes into headers what messages carry of the context in which they are added: a trace, as a rule. Package idemotel has
// one.
type Carrier interface {
	Carry(ctx context.Context, headers map[string]string)
}

// WithCarrier returns a context with which Add has c write headers of each message. A program gives it to its outermost context, that of
// an http.Server for example: c is asked with the context that Add is given.
func WithCarrier(ctx context.Context, c Carrier) context.Context {
	return context.WithValue(ctx, carrierKey{}, c)
}

type carrierKey struct{}

// carried returns what messages carry of a context.
func carried(ctx context.Context) map[string]string {
	c, ok := ctx.Value(carrierKey{}).(Carrier)
	if !ok || c == nil {
		return nil
	}
	headers := map[string]string{}
	c.Carry(ctx, headers)
	return headers
}

// carrying returns the headers of a message with others. It has none of them if one of its own has the name of one, or if it would
// have more than it may.
func (m *Message) carrying(headers map[string]string) map[string]string {
	all := make(map[string]string, len(m.Headers)+len(headers))
	maps.Copy(all, headers)
	maps.Copy(all, m.Headers)
	larger := *m
	if larger.Headers = all; len(headers) == 0 || len(all) < len(m.Headers)+len(headers) || larger.check() != nil {
		return m.Headers
	}
	return all
}
