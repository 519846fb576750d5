// Package redelivery passes IDs from a relay to a Publisher of this module: the IDs of messages
// that a Publisher may have got before.
//
// Such a message may have crashed the process in the earlier call of a Publisher. The Publisher can
// therefore handle it apart from other messages.
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
