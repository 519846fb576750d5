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
	config *RelayConfig
	post   *post
}

const (
	readLimit   = 6 * time.Minute // whatever is in the way of the index, and more than the server may work
	settleLimit = 30 * time.Second
)

// settle writes down the outcome of a batch, whether or not ctx has ended.
func (c *clerk) settle(ctx context.Context, o *outcome) error {
	written := c.written(o)
	if len(written) > 0 {
		requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
		if err := c.ask(context.WithoutCancel(ctx), settleLimit, append(requests, commit)...); err != nil {
			return err
		}
	}
	c.tell(o)
	*o = outcome{}
	return nil
}

// written returns the requests that write an outcome down, with a fence before them if there are any.
func (c *clerk) written(o *outcome) []txn.Request {
	requests := o.requests(c.config)
	if len(requests) == 0 {
		return nil
	}
	return append(c.post.fence(), requests...)
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
	if err := c.post.signIfDue(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	err := c.post.db.Query(bounded, requests...)
	if err == nil && c.post.session != nil {
		c.post.seen.Store(time.Now().UnixNano())
	}
	return err
}
