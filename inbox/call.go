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
	settings
	consumer string
	engine   txn.Engine
	handler  handler
	registry registry
	order    order
	pace     pace
	searched time.Time // since when groups are divided in search of messages that others have
	stopped  error     // why no other message is tried
	data     TraceHandledData
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
