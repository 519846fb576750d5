package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// clerk is where a worker asks the database, and writes down what came of messages.
type clerk struct {
	config    *RelayConfig
	ownership *ownership
	heldKeys  heldKeys
	unwritten unwritten
	full      bool // what was read last was as much as one reads at a time
}

const (
	readLimit   = 6 * time.Minute // whatever is in the way of the index, and more than the server may work
	settleLimit = 30 * time.Second
)

// settle writes down the outcome of a batch, whether or not ctx has ended.
func (c *clerk) settle(ctx context.Context, o *outcome) error {
	written, n := c.written(o)
	if len(written) > 0 {
		requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
		if err := c.ask(context.WithoutCancel(ctx), settleLimit, append(requests, commit)...); err != nil {
			return err
		}
	}
	c.wrote(o, n)
	*o = outcome{}
	return nil
}

// settleAll writes down what is unwritten as well, unless that takes too long: then the next relay finds out again.
func (c *clerk) settleAll(ctx context.Context, o *outcome) error {
	c.full = false
	for began := time.Now(); ; {
		if err := c.settle(ctx, o); err != nil || len(c.unwritten.line) == 0 || time.Since(began) > c.config.Drain {
			return err
		}
	}
}

// written returns the requests that write down an outcome and the first n of what is unwritten, with a fence before them if there are any.
func (c *clerk) written(o *outcome) (requests []txn.Request, n int) {
	n = c.unwritten.portion(c.full)
	requests = append(o.requests(c.config), c.unwritten.requests(n, time.Now())...)
	if len(requests) == 0 {
		return nil, 0
	}
	return append(c.ownership.fence(), requests...), n
}

// wrote notes that it is written down.
func (c *clerk) wrote(o *outcome, n int) {
	for _, e := range c.unwritten.take(n) {
		c.heldKeys.written(e.key)
	}
	c.tell(o)
}

// fail notes that a message is held back, or is a dead letter.
func (c *clerk) fail(f *failure) {
	if due := c.heldKeys.fail(f, c.config); f.bury == nil {
		c.unwritten.fail(f, due)
		c.heldKeys.waits(keyOf(&f.message))
	}
}

// hold notes that a message is held back because it is behind another one.
func (c *clerk) hold(b behind) {
	c.unwritten.add(entry{place: b.place, key: b.key})
	c.heldKeys.waits(b.key)
}

// tell tells of dead letters, once they are.
func (c *clerk) tell(o *outcome) {
	if c.config.OnDead == nil {
		return
	}
	for i := range o.failed {
		if o.failed[i].bury != nil {
			guard.Do(c.config.Logger, "outbox: OnDead", func() { c.config.OnDead(o.failed[i].letter()) })
		}
	}
}

func (c *clerk) ask(ctx context.Context, limit time.Duration, requests ...txn.Request) error {
	if err := c.ownership.signIfDue(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	err := c.ownership.ask(bounded, requests...)
	if err == nil && c.ownership.session.Load() != nil {
		c.ownership.seen.Store(time.Now().UnixNano())
	}
	return err
}
