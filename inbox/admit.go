package inbox

import (
	"context"
	"time"
)

// groups arranges a round for who tries it. A call that tries one message first finds out which is the best for that.
func (c *call) groups(ctx context.Context, round []*delivery) ([][]*delivery, error) {
	if !c.pace.probing || len(round) == 1 {
		return c.registry.groups(ctx, round)
	}
	if err := c.registry.know(ctx, unsettled(round)); err != nil {
		return nil, err
	}
	groups, err := c.registry.groups(ctx, round)
	if d := c.probe(unsettled(round)); d != nil {
		groups = append([][]*delivery{{d}}, groups...)
	}
	return groups, err
}

// probe returns, of messages that need not wait for one of their key, the one that was tried least: so that none becomes a dead letter
// only because it is tried each time.
func (c *call) probe(round []*delivery) (best *delivery) {
	for i, d := range round {
		if c.ordered && d.isBehind(round[:i]) {
			continue
		}
		if best == nil || d.suspicion < best.suspicion || d.suspicion == best.suspicion && d.attempts+d.hindered < best.attempts+best.hindered {
			best = d
		}
	}
	return best
}

// admit returns what is to be tried of a group. While the consumer pauses that is nothing, and all of it is put off.
func (c *call) admit(group []*delivery) []*delivery {
	until := time.Time{}
	if len(unsettled(group)) > 0 {
		until = c.pace.admit()
	}
	if until.IsZero() {
		return group
	}
	for _, d := range unsettled(group) {
		d.putOffUntil(until, ErrPaused)
		c.data.Paused += len(d.twins)
	}
	return nil
}
