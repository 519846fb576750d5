package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// course is how a call goes on after what has happened in its attempts.
type course struct {
	settings
	registry registry
	order    order
	pace     pace
	searched time.Time // since when groups are divided in search of messages that others have
	stopped  error     // why no other message is tried
	data     TraceHandledData
}

// blame registers the outcome of the culprit, and returns what came before it and what comes behind it. If it is not known who it
// is, it returns two halves. In order, what is on record as failed holds its key back: if others of that are before it, it is
// tried once more when they are done, and not blamed if they are not.
func (c *course) blame(ctx context.Context, group []*delivery, a *attempt, e ending) [][]*delivery {
	if e.unacknowledged {
		return c.resolve(ctx, group, a, e)
	}
	if e.culprit == nil && len(a.claimed) == 1 {
		e.culprit = a.claimed[0]
	}
	if e.culprit == nil {
		return halves(group)
	}
	i := slices.Index(group, e.culprit)
	before, behind := group[:i], group[i+1:]
	if c.ordered && e.culprit.isBehind(before) {
		return [][]*delivery{before, {e.culprit}, behind}
	}
	c.fail(ctx, e, slices.Index(a.claimed, e.culprit))
	return [][]*delivery{before, behind}
}

// resolve looks up the outcome of a COMMIT that is not to be made again: only if it has not happened, a message was tried in vain.
func (c *course) resolve(ctx context.Context, group []*delivery, a *attempt, e ending) [][]*delivery {
	committed, err := a.committed(ctx)
	switch {
	case err != nil:
		c.stopped = e.err
		c.postpone(group, e.err)
		return nil
	case !committed:
		e.unacknowledged = false
		return c.blame(ctx, group, a, e)
	}
	for _, d := range a.claimed {
		d.settle(Outcome{State: Done})
	}
	c.pace.passed(true)
	return [][]*delivery{group} // without those that have an outcome now
}

// fail registers that a message was tried in vain, behind so many that were handled in the attempt. If the database does not take
// that, it is away, and no message was to blame.
func (c *course) fail(ctx context.Context, e ending, handled int) {
	if e.kind == hindered || !c.pace.counts() {
		c.data.Hindered++
		c.registered(ctx, c.registry.hinder(ctx, e.culprit, e.err))
	} else {
		c.data.Failures++
		c.registered(ctx, c.registry.fail(ctx, e.culprit, e.err))
	}
	if c.stopped == nil {
		c.pace.failed(handled)
	}
}

// refuse makes dead letters of messages that are not to be tried.
func (c *course) refuse(ctx context.Context, refused []refusal) {
	for _, r := range refused {
		c.registered(ctx, c.registry.refuse(ctx, r.delivery, r.err))
	}
}

// registered stops the call if the database did not take what was to be registered, unless that was for a message that another process
// else is handling.
func (c *course) registered(ctx context.Context, err error) {
	if err != nil && judgeDatabase(ctx, err) == stopped {
		c.stopped = err
	}
}

// divide parts a group one of whose messages another consumer is handling, so that the others need not wait for it.
func (c *course) divide(group []*delivery) [][]*delivery {
	if c.searched.IsZero() {
		c.searched = time.Now()
	}
	if len(group) == 1 || time.Since(c.searched) > c.limits.search {
		c.postpone(group, ErrElsewhere)
		return nil
	}
	return halves(group)
}

func halves(group []*delivery) [][]*delivery {
	half := len(group) / 2
	return [][]*delivery{group[:half], group[half:]}
}

func (c *course) postpone(group []*delivery, err error) {
	for _, d := range unsettled(group) {
		d.putOff(c.minPause, err)
	}
}

// repair takes back what the record says of messages that were not handled, if a handler of the attempt has committed. It reports
// whether one has. Its error says that this could not be found out, or taken back.
func (c *course) repair(ctx context.Context, a *attempt, e *ending) (done bool, err error) {
	committed, err := a.committed(ctx)
	if err != nil || !committed {
		return false, err
	}
	handled, suspects := a.enders()
	if err := a.release(ctx, a.claimed[len(handled):]); err != nil {
		return false, err
	}
	for _, d := range handled {
		d.settle(Outcome{State: Done})
	}
	if !errors.Is(e.err, ErrTxEnded) {
		e.err = fmt.Errorf("%w: a statement of a handler did; and then: %v", ErrTxEnded, e.err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limits.resolve)
	defer cancel()
	for _, d := range suspects {
		c.registered(ctx, c.registry.bury(ctx, d, d.ID, d.attempts+1, e.err))
		c.pace.failed(0)
	}
	return true, nil
}
