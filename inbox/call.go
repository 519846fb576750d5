package inbox

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/txn"
)

// call is one Handle, Batch or Bulk from its messages to their outcomes.
type call struct {
	course
	consumer string
	engine   txn.Engine
	handler  handler
}

// settle brings every delivery of a round to an outcome. It begins with all of them in one transaction. Where one of them fails,
// those before it are committed, and it goes on behind it: no handler of Batch runs more than twice because of others. Where it is
// not known which of them has failed, as of a connection that was lost or of a COMMIT, groups are halved until it is.
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

// open returns what is to be tried of a group.
func (c *call) open(group []*delivery) []*delivery {
	if c.ordered {
		c.order.holdBack()
	}
	return unsettled(group)
}

// try makes attempts at a group until one of them leads on, and returns what is left of it, in parts: all that has no outcome, or
// others of its key would not wait for it.
func (c *call) try(ctx context.Context, group []*delivery) [][]*delivery {
	if group[0].suspicion > 0 {
		over, err := turn(ctx, c.limits.turn)
		if err != nil {
			c.limits.turn = 0 // it is long enough to wait once
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
	var asked time.Time // since when it is asked for the outcome of a COMMIT
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

// patience is how long to wait for a message that another consumer is handling: once for long, and then, in search of it, no more.
func (c *call) patience() time.Duration {
	if c.searched.IsZero() {
		return c.limits.patience
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
