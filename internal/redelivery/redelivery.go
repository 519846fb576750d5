// Package redelivery passes the IDs of messages that may be redeliveries from a relay to a
// Publisher of this module.
//
// A relay marks each message that it has passed to a Publisher before. The earlier call of the
// Publisher may have ended the process because of the message. A Publisher can therefore handle a
// marked message apart from the others.
package redelivery

import "context"

type key struct{}

// With returns a context that carries the IDs of possible redeliveries.
func With(ctx context.Context, ids map[string]bool) context.Context {
	if len(ids) == 0 {
		return ctx
	}
	return context.WithValue(ctx, key{}, ids)
}

// IDs returns the IDs that ctx carries. It returns nil if there are none.
func IDs(ctx context.Context) map[string]bool {
	ids, _ := ctx.Value(key{}).(map[string]bool)
	return ids
}
