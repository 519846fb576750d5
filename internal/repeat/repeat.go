// Package repeat lets a relay tell a Publisher of this module which messages of a call may have been given to a Publisher before, whose
// process has perhaps died of them.
package repeat

import "context"

type key struct{}

// With returns a context that names messages, by their IDs.
func With(ctx context.Context, ids map[string]bool) context.Context {
	if len(ids) == 0 {
		return ctx
	}
	return context.WithValue(ctx, key{}, ids)
}

// Of returns the messages that the context names.
func Of(ctx context.Context) map[string]bool {
	ids, _ := ctx.Value(key{}).(map[string]bool)
	return ids
}
