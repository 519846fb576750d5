package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// call handles the messages of one lane. A lane is a part of the messages of a Handle, Batch or
// Bulk.
type call struct {
	*consumer
	all          []*delivery // in the order in which the caller has passed them
	pace         pace
	turnWait     time.Duration // the longest wait in acquireTurn; 0 once the call has waited in vain
	dividedSince time.Time     // when the call began to halve groups, to find locked messages
	stopped      error         // the error after which the call tries no further message, or nil
	data         TraceHandledData
}

func newCall(c *consumer, messages int) *call {
	return &call{
		consumer: c, turnWait: c.limits.turn,
		pace: pace{settings: &c.settings, circuit: circuitOf(c.engine.Pool, c.name), room: messages},
	}
}

func (c *call) run(ctx context.Context, messages []Message) []Outcome {
	outcomes := make([]Outcome, len(messages))
	all := rounds(messages, c.ordered)
	c.all = slices.Concat(all...)
	c.admit(c.all) // a paused consumer sends no query
	if c.ordered && len(unsettled(c.all)) > 0 {
		slices.SortFunc(c.all, func(a, b *delivery) int { return cmp.Compare(a.positions[0], b.positions[0]) })
		c.stopped = retryBehindStored(ctx, c.consumer, c.all)
	}
	for _, round := range all {
		for _, d := range unsettled(round) {
			if err := checkName("ID of the message", d.ID); err != nil {
				c.refuse(ctx, []refusal{{d, err}})
			}
		}
		c.settle(ctx, round)
		for _, d := range round {
			d.report(outcomes)
		}
	}
	return outcomes
}

// settle sets the outcome of every delivery of a round. It divides the round into groups, and tries
// each group in one transaction. If a message fails, settle tries the messages before it again
// without it, and then the messages after it. So in Batch, failures of other messages make the
// handler run at most twice for a message. If it is unknown which message has failed, as after a
// failed COMMIT, settle halves the group until it has found the message.
func (c *call) settle(ctx context.Context, round []*delivery) {
	if c.admit(round); len(unsettled(round)) == 0 {
		return
	}
	todo, err := c.groups(ctx, round)
	if err != nil {
		c.stopped = err
		todo = [][]*delivery{round}
	}
	for len(todo) > 0 {
		group := c.open(todo[0])
		todo = todo[1:]
		if c.stopped != nil {
			c.postpone(group, c.stopped)
			continue
		}
		if group = c.admit(group); len(group) > c.pace.room {
			todo = append([][]*delivery{group[c.pace.room:]}, todo...)
			group = group[:c.pace.room]
		}
		if len(group) > 0 {
			todo = append(c.try(ctx, group), todo...)
		}
	}
	c.withdraw(ctx, round)
}

// groups divides a round into groups. It first reads the rows of redelivered messages: if such a
// message is handled already, no attempt is counted. While the circuit is open, it reads the rows
// of all messages, because the first message to be tried must be one whose attempt is due.
func (c *call) groups(ctx context.Context, round []*delivery) ([][]*delivery, error) {
	var load []*delivery
	for _, d := range round {
		if !d.isSettled() && (d.Deliveries > 1 || c.pace.probing && len(round) > 1) {
			load = append(load, d)
		}
	}
	if len(load) == 0 {
		return [][]*delivery{round}, nil
	}
	rows, err := c.stored(ctx, load)
	if err != nil {
		return nil, err
	}
	byID := byID(load)
	for i := range rows {
		d := byID[rows[i].MessageID]
		due, _ := d.apply(&rows[i]) // the attempt detects a mismatch too
		if d.unfinished = due && rows[i].Begun; d.unfinished && rows[i].Attempts >= c.maxAttempts {
			c.refuse(ctx, []refusal{{d, ErrKilled}})
		}
	}
	open := unsettled(round)
	groups := arrange(open, c.ordered)
	if c.pace.probing {
		if d := c.probe(open); d != nil {
			groups = append([][]*delivery{{d}}, groups...)
		}
	}
	return groups, nil
}

// probe returns the message to try first while the circuit is open. It chooses a message with the
// fewest attempts. Otherwise one message could become a dead letter only because it is tried first
// each time. With WithOrder, it chooses no message that has an earlier one of its key in the round.
func (c *call) probe(round []*delivery) (best *delivery) {
	for i, d := range round {
		if c.ordered && d.sharesKey(round[:i]) {
			continue
		}
		if best == nil || d.attempts+d.hindered < best.attempts+best.hindered {
			best = d
		}
	}
	return best
}

// admit returns the group if the circuit lets the call try it. Otherwise admit postpones the
// messages of the group and returns nil.
func (c *call) admit(group []*delivery) []*delivery {
	open := unsettled(group)
	if len(open) == 0 {
		return group
	}
	until := c.pace.admit()
	if until.IsZero() {
		return group
	}
	for _, d := range open {
		d.postpone(until, ErrPaused)
		c.data.Paused += len(d.positions)
	}
	return nil
}

// open returns the messages of a group that have no outcome yet. With WithOrder, it first postpones
// each message of the call that follows a message of the same key with the outcome Retry.
func (c *call) open(group []*delivery) []*delivery {
	if c.ordered {
		postponeBehind(c.all)
	}
	return unsettled(group)
}

// try makes attempts at a group until an attempt settles messages or finds a failing message. It
// returns the rest of the group as groups to be tried next. These may contain settled messages,
// which open removes.
func (c *call) try(ctx context.Context, group []*delivery) [][]*delivery {
	if group[0].unfinished {
		release, err := acquireTurn(ctx, c.turnWait)
		if err != nil {
			c.turnWait = 0 // a call waits in acquireTurn only once
			return c.postpone(group, err)
		}
		defer release()
	}
	if err := c.announce(ctx, group[0], c.lockWait()); err != nil {
		if kindOfDatabaseError(ctx, err) == locked {
			return c.divide(group)
		}
		return c.stop(group, err)
	}
	return c.attempts(ctx, group)
}

// attempts makes the attempts of try, after try has counted the attempt at a redelivered message in
// advance.
func (c *call) attempts(ctx context.Context, group []*delivery) [][]*delivery {
	pause, left := txn.RetryPause, c.retries
	var doubtSince time.Time // when the outcome of a COMMIT was first in doubt
	for {
		a := newAttempt(c.consumer, group, c.lockWait())
		r := a.run(ctx)
		c.data.Transactions++
		c.data.Runs += a.runs
		c.refuse(ctx, a.refused)
		if r.kind == handled {
			c.pace.passed(len(a.claimed) > 0)
		}
		switch repaired, err := c.repair(ctx, a, r); {
		case err != nil:
			return c.stop(group, err)
		case repaired:
			return [][]*delivery{group}
		}
		if group = c.open(group); len(group) == 0 {
			return nil
		}
		// If the outcome of a COMMIT is in doubt, the next attempt reads it from the rows. That attempt
		// does not use up a retry, unless it called the handlers again and the outcome of their COMMIT is
		// in doubt too.
		doubt := slices.ContainsFunc(group, func(d *delivery) bool { return d.state == inDoubt })
		resolving := doubt && (a.runs == 0 || doubtSince.IsZero())
		if doubt && doubtSince.IsZero() {
			doubtSince = time.Now()
		}
		switch {
		case r.kind == handled:
			return [][]*delivery{group}
		case r.kind == failed, r.kind == hindered, r.kind == txEnded:
			return c.attribute(ctx, group, a, r)
		case r.kind == stopped:
			return c.stop(group, r.err)
		case resolving && time.Since(doubtSince) < c.limits.resolve:
		case r.kind == locked && !doubt: // if a COMMIT is in doubt, its own transaction may still have the lock
			return c.divide(group)
		case left == 0:
			return c.giveUp(ctx, group, a, r)
		default:
			left--
		}
		if err := txn.Sleep(ctx, pause.Next()); err != nil {
			return c.stop(group, err)
		}
	}
}

// giveUp ends the attempts at a group whose retries are used up.
func (c *call) giveUp(ctx context.Context, group []*delivery, a *attempt, r result) [][]*delivery {
	if a.runs > 0 {
		return c.attribute(ctx, group, a, r.exhausted())
	}
	return c.postpone(group, r.err)
}

// lockWait returns how long a statement waits for a message that another process is handling. The
// wait is long at first, short while the call halves groups to find such messages, and minimal
// after that.
func (c *call) lockWait() time.Duration {
	switch {
	case c.dividedSince.IsZero():
		return c.limits.lockWait
	case time.Since(c.dividedSince) > c.limits.divide:
		return time.Millisecond
	}
	return max(c.limits.lockWait/20, time.Millisecond)
}

// attribute records the failure of one message, and returns the groups to try next: the messages
// before it, and the messages after it. If it is unknown which message has failed, attribute
// records nothing and returns the halves of the group.
//
// With WithOrder, a failing message blocks its key. So if the group has earlier messages of the
// key, attribute records no failure. The messages before the failing one are tried first, and then
// the failing message alone. If an earlier message of the key fails meanwhile, the later message is
// postponed without a failure.
func (c *call) attribute(ctx context.Context, group []*delivery, a *attempt, r result) [][]*delivery {
	if r.inDoubt {
		committed, err := a.committed(ctx)
		switch {
		case err != nil:
			return c.stop(group, r.err)
		case committed:
			a.settleDone(a.claimed)
			c.pace.passed(true)
			return [][]*delivery{group}
		}
	}
	if r.message == nil && len(a.claimed) == 1 {
		r.message = a.claimed[0]
	}
	if r.message == nil {
		return halves(group)
	}
	i := slices.Index(group, r.message)
	before, behind := group[:i], group[i+1:]
	if c.ordered && r.message.sharesKey(before) {
		return [][]*delivery{before, {r.message}, behind}
	}
	if r.kind == hindered || !c.pace.counts() {
		c.data.Hindered++
		c.recorded(ctx, c.hinder(ctx, r.message, r.err))
	} else {
		c.data.Failures++
		c.recorded(ctx, c.fail(ctx, r.message, r.err))
	}
	if c.stopped == nil {
		c.pace.failed(slices.Index(a.claimed, r.message))
	}
	return [][]*delivery{before, behind}
}

// refuse makes dead letters of messages that must not be tried.
func (c *call) refuse(ctx context.Context, refused []refusal) {
	for _, r := range refused {
		c.recorded(ctx, c.consumer.refuse(ctx, r.delivery, r.err))
	}
}

// recorded ends the call if the error says that a failure could not be recorded. It does not end
// the call if the reason is only that another process is handling the message.
func (c *call) recorded(ctx context.Context, err error) {
	if err != nil && kindOfDatabaseError(ctx, err) == stopped {
		c.stopped = err
	}
}

// divide halves a group if another process is handling one of its messages, so that the other
// messages need not wait for that process.
func (c *call) divide(group []*delivery) [][]*delivery {
	if c.dividedSince.IsZero() {
		c.dividedSince = time.Now()
	}
	if len(group) == 1 || time.Since(c.dividedSince) > c.limits.divide {
		return c.postpone(group, ErrElsewhere)
	}
	return halves(group)
}

func halves(group []*delivery) [][]*delivery {
	half := len(group) / 2
	return [][]*delivery{group[:half], group[half:]}
}

// stop postpones the group and ends the call. It returns nil, because no group is left to try.
func (c *call) stop(group []*delivery, err error) [][]*delivery {
	c.stopped = err
	return c.postpone(group, err)
}

// postpone postpones the group. It returns nil, because no group is left to try.
func (c *call) postpone(group []*delivery, err error) [][]*delivery {
	for _, d := range unsettled(group) {
		d.postpone(time.Now().Add(c.minBackoff), err)
	}
	return nil
}

// repair corrects the rows after a handler has committed its transaction by a statement. Such a
// COMMIT marks every claimed message as handled. The mark is wrong if the handler of a message did
// not run, or ran in a later transaction that was rolled back. repair deletes the rows of these
// messages, and makes dead letters of the messages whose handler may have committed. It reports
// whether a handler has committed.
func (c *call) repair(ctx context.Context, a *attempt, r result) (repaired bool, err error) {
	if r.kind == handled || r.inDoubt || a.intact || a.runs == 0 {
		return false, nil
	}
	cause := r.err
	committed, err := a.committed(ctx)
	if err != nil || !committed {
		return false, err
	}
	done, suspects := a.committers()
	if err := a.release(ctx, a.claimed[len(done):]); err != nil {
		return false, err
	}
	a.settleDone(done)
	if !errors.Is(cause, ErrTxEnded) {
		cause = fmt.Errorf("%w: a statement of a handler did; afterwards: %v", ErrTxEnded, cause)
	}
	ctx, cancel := outlive(ctx, c.limits.resolve)
	defer cancel()
	for _, d := range suspects {
		c.recorded(ctx, c.bury(ctx, d, d.ID, d.attempts+1, cause))
		c.pace.failed(0)
	}
	return true, nil
}

// turns is a semaphore for messages that may have killed an earlier process: their last attempt has
// no recorded end. This process tries one such message at a time, so that a crash counts only
// against that message.
var turns = make(chan struct{}, 1)

// acquireTurn acquires the semaphore turns and returns the function that releases it. It returns
// ErrSuspected if that takes longer than wait, or the error of ctx.
func acquireTurn(ctx context.Context, wait time.Duration) (release func(), err error) {
	release = func() { <-turns }
	select {
	case turns <- struct{}{}:
		return release, nil
	default:
	}
	select {
	case turns <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
		return nil, ErrSuspected
	}
}
