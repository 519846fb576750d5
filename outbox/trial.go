package outbox

import (
	"context"
	"errors"

	"github.com/idem-go/idem/internal/store"
)

// publish hands a batch to the Publisher.
func (b *batch) publish(ctx context.Context, c *caller) *outcome {
	r := &round{batch: b, caller: c, stuck: map[store.HeldKey]bool{}, later: map[store.HeldKey]bool{}, dealt: make([]bool, len(b.messages)), did: &outcome{}}
	if !c.trial.on {
		r.all(ctx)
	}
	if c.trial.on || r.isInDoubt() {
		r.try(ctx)
	}
	r.close()
	return r.did
}

// isInDoubt reports whether a call has failed and it is not known why.
func (r *round) isInDoubt() bool {
	return r.did.err != nil && r.did.hung == nil && !errors.Is(r.did.err, errLost) && !isAway(r.did.err)
}

// try publishes few messages at a time: one at first, and more as long as no call fails.
func (r *round) try(ctx context.Context) {
	s := searchOf(r)
	for ctx.Err() == nil && !s.isOver() {
		line, part := s.pick()
		if len(part) == 0 {
			break
		}
		if s.publish(ctx, line, part); r.did.hung != nil || errors.Is(r.did.err, errLost) {
			return
		}
	}
	s.end(ctx)
}
