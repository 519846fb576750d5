package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// call is one Handle, Batch or Bulk, or one lane of it, from its messages to their outcomes.
type call struct {
	settings
	consumer string
	engine   txn.Engine
	handler  handler
	registry registry
	order    order
	pace     pace
	searched time.Time // since when groups are halved to find messages that other consumers have
	stopped  error     // why no other message is tried
	data     TraceHandledData
}

// settle brings every delivery of a round to an outcome. A group is tried in one transaction. Where a message fails, those before
// it are tried again without it, and then those behind it: no handler of Batch runs more than twice because of others. Where it is
// unknown which message has failed, as with a lost connection or a failed COMMIT, groups are halved until it is known.
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
	c.registry.withdraw(ctx, round)
}

// groups divides a round into the groups that are tried one after the other.
func (c *call) groups(ctx context.Context, round []*delivery) ([][]*delivery, error) {
	var again []*delivery
	for _, d := range round {
		if !d.isSettled() && (d.Deliveries > 1 || c.pace.probing && len(round) > 1) {
			again = append(again, d)
		}
	}
	if len(again) == 0 {
		return [][]*delivery{round}, nil
	}
	if err := c.know(ctx, again); err != nil {
		return nil, err
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

// know loads what is stored about messages, and settles those that are not to be tried.
func (c *call) know(ctx context.Context, group []*delivery) error {
	byID, messages := c.registry.messages(group)
	load := db.LoadMessages{Messages: messages}
	if err := c.registry.engine.Query(ctx, &load); err != nil {
		return err
	}
	for i := range load.Rows {
		k := &load.Rows[i]
		d := byID[k.MessageID]
		due, _ := d.learn(k)
		if d.unfinished = due && k.Begun; d.unfinished && k.Attempts >= c.maxAttempts {
			c.refuse(ctx, []refusal{{d, ErrKilled}})
		}
	}
	return nil
}

// probe returns the message to try first while the circuit is open: the one with the fewest attempts, so that no message becomes a
// dead letter only because it is tried each time. It waits for no other of its key.
func (c *call) probe(round []*delivery) (best *delivery) {
	for i, d := range round {
		if c.ordered && d.isBehind(round[:i]) {
			continue
		}
		if best == nil || d.attempts+d.hindered < best.attempts+best.hindered {
			best = d
		}
	}
	return best
}

// admit returns the group if it may be tried. While the consumer pauses, all of it is put off.
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

// open returns the messages of a group that have no outcome yet.
func (c *call) open(group []*delivery) []*delivery {
	if c.ordered {
		c.order.holdBack()
	}
	return unsettled(group)
}

// try makes attempts at a group until one of them leads on. It returns the rest of the group in parts: all messages without an
// outcome, because others of their keys wait for them.
func (c *call) try(ctx context.Context, group []*delivery) [][]*delivery {
	if group[0].unfinished {
		over, err := turn(ctx, c.limits.turn)
		if err != nil {
			c.limits.turn = 0 // a call waits once
			c.postpone(group, err)
			return nil
		}
		defer over()
	}
	switch err := c.registry.announce(ctx, group, c.patience()); {
	case err == nil:
	case judgeDatabase(ctx, err) == held:
		return c.divide(group)
	default:
		c.stopped = err
		c.postpone(group, err)
		return nil
	}
	pause, left := txn.RetryPause, c.retries
	var asked time.Time // when the call began to ask for the outcome of a COMMIT
	for {
		a := c.attempt(group)
		e := a.run(ctx)
		c.data.Transactions++
		c.data.Runs += a.runs
		c.refuse(ctx, a.refused)
		if e.kind == through {
			c.pace.passed(len(a.claimed) > 0)
		}
		if e.kind != through && !e.unacknowledged && !a.kept && a.runs > 0 {
			if done, err := c.repair(ctx, a, &e); err != nil {
				c.stopped = err
				c.postpone(group, err)
				return nil
			} else if done {
				return [][]*delivery{group} // without those that have an outcome
			}
		}
		if group = c.open(group); len(group) == 0 {
			return nil
		}
		unknown := slices.ContainsFunc(group, func(d *delivery) bool { return d.state == unclear })
		asking := unknown && (a.runs == 0 || asked.IsZero()) // a COMMIT that fails in each run is given up like any other error
		if unknown && asked.IsZero() {
			asked = time.Now()
		}
		switch {
		case e.kind == through:
			return [][]*delivery{group}
		case e.kind == failed, e.kind == hindered, e.kind == ended:
			return c.blame(ctx, group, a, e)
		case e.kind == stopped:
			c.stopped = e.err
			c.postpone(group, e.err)
			return nil
		case asking && time.Since(asked) < c.limits.resolve: // again, or held by the COMMIT itself
		case e.kind == held && !unknown:
			return c.divide(group)
		case left == 0 && a.runs > 0:
			return c.blame(ctx, group, a, e.exhausted())
		case left == 0:
			c.postpone(group, e.err)
			return nil
		default:
			left--
		}
		if err := txn.Sleep(ctx, pause.Next()); err != nil {
			c.stopped = err
			c.postpone(group, err)
			return nil
		}
	}
}

func (c *call) attempt(group []*delivery) *attempt {
	return &attempt{
		settings: &c.settings, engine: &c.engine, consumer: c.consumer, handler: c.handler, group: group,
		executionID: newExecutionID(), patience: c.patience(),
	}
}

// patience is how long to wait for a message that another consumer is handling: long at first, briefly while the call finds out
// which messages are, and hardly at all after that.
func (c *call) patience() time.Duration {
	switch {
	case c.searched.IsZero():
		return c.limits.patience
	case time.Since(c.searched) > c.limits.search:
		return time.Millisecond
	}
	return max(c.limits.patience/20, time.Millisecond)
}

// newExecutionID returns a random UUID.
func newExecutionID() string {
	id := pgtype.UUID{Valid: true}
	rand.Read(id.Bytes[:])
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x40
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}

// blame records the failure of the culprit, and returns the messages before it and those behind it. If the culprit is unknown it
// returns two halves. In order, a failed message blocks its key. So if others of its key are before it, it is tried once more when
// they are done, and does not fail if they do.
func (c *call) blame(ctx context.Context, group []*delivery, a *attempt, e ending) [][]*delivery {
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

// resolve reads the outcome of a COMMIT that is not to be repeated. Only if it did not happen, a message has failed.
func (c *call) resolve(ctx context.Context, group []*delivery, a *attempt, e ending) [][]*delivery {
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

// fail records that a message has failed, or was hindered. handled is how many messages were handled before it in the attempt. If
// the database does not take the record, it is unavailable, and no message has failed.
func (c *call) fail(ctx context.Context, e ending, handled int) {
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

// refuse makes dead letters of messages without an attempt.
func (c *call) refuse(ctx context.Context, refused []refusal) {
	for _, r := range refused {
		c.registered(ctx, c.registry.refuse(ctx, r.delivery, r.err))
	}
}

// registered stops the call if the database did not take a record, unless another process is handling the message.
func (c *call) registered(ctx context.Context, err error) {
	if err != nil && judgeDatabase(ctx, err) == stopped {
		c.stopped = err
	}
}

// divide halves a group in which another consumer is handling a message, so that the others need not wait for it.
func (c *call) divide(group []*delivery) [][]*delivery {
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

func (c *call) postpone(group []*delivery, err error) {
	for _, d := range unsettled(group) {
		d.putOff(c.minBackoff, err)
	}
}

// repair deletes the rows of messages that were not handled, if a handler of the attempt has committed. It reports whether one has.
// Its error says that the rows could not be read or deleted.
func (c *call) repair(ctx context.Context, a *attempt, e *ending) (done bool, err error) {
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
