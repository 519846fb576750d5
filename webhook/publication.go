package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/outbox"
)

// perEndpoint bounds how many messages to one endpoint are under way at once.
const perEndpoint = 4

// publication is one call of Publish.
type publication struct {
	endpoint func(ctx context.Context, topic string) (Endpoint, error)
	sender   sender
	rest     *rest
	slots    chan struct{} // one for each message that is under way
	timeout  time.Duration // of a message

	mu     sync.Mutex
	failed map[string]error
}

// serve sends the messages of a topic.
func (c *publication) serve(ctx context.Context, topic string, lanes []lane) {
	target, err := c.target(ctx, topic)
	if err != nil {
		for _, l := range lanes {
			c.fail(l, err)
		}
		return
	}
	next := make(chan lane)
	var senders sync.WaitGroup
	for range min(perEndpoint, len(lanes)) {
		senders.Go(func() {
			for l := range next {
				c.send(ctx, target, l)
			}
		})
	}
	for _, l := range lanes {
		next <- l
	}
	close(next)
	senders.Wait()
}

// target finds out where a topic goes. That may take a slot's time as well.
func (c *publication) target(ctx context.Context, topic string) (*target, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.end()
	var endpoint Endpoint
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := panics.Try(func() (err error) {
		endpoint, err = c.endpoint(bounded, topic)
		return err
	})
	switch {
	case err == nil:
		return c.sender.target(topic, endpoint)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, outbox.RetryLater(fmt.Errorf("webhook: PublisherConfig.Endpoint has not answered in time: %v", err), minRest)
	case txn.Transient(err): // its database is unavailable
		return nil, outbox.RetryLater(fmt.Errorf("webhook: PublisherConfig.Endpoint: %w", err), minRest)
	}
	return nil, fmt.Errorf("webhook: no endpoint for this topic: %w", err)
}

// send sends a lane up to the first message that fails.
func (c *publication) send(ctx context.Context, t *target, l lane) {
	for i, m := range l {
		if err := c.sendOne(ctx, t, m); err != nil {
			c.fail(l[i:i+1], err)
			c.fail(l[i+1:], fmt.Errorf("%w: %w", ErrHeldBack, err))
			return
		}
	}
}

func (c *publication) sendOne(ctx context.Context, t *target, m outbox.Message) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.end()
	if err := c.rest.check(t.topic, c.sender.now()); err != nil {
		return err
	}
	err := panics.Try(func() error { return t.post(ctx, m, c.timeout) })
	if _, answered := errors.AsType[*StatusError](err); ctx.Err() != nil && !answered {
		return err // the call is over, which says nothing of the endpoint
	}
	if c.rest.note(t.topic, m.ID, err, c.sender.now()) {
		return outbox.RetryLater(timely(err), max(c.rest.left(t.topic, c.sender.now()), minRest))
	}
	return timely(err)
}

// begin waits for a slot. When ctx has ended nothing begins, and nothing that it may cut off.
func (c *publication) begin(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return unsent(ctx.Err())
	}
	err := ctx.Err()
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) < c.timeout {
		err = context.DeadlineExceeded
	}
	if err != nil {
		c.end()
		return unsent(err)
	}
	return nil
}

// unsent is the error of a message for which there was no time: it comes again in the next call.
func unsent(err error) error {
	return outbox.RetryLater(fmt.Errorf("webhook: there was no time for the message: %w", err), 0)
}

func (c *publication) end() { <-c.slots }

func (c *publication) fail(l lane, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range l {
		c.failed[m.ID] = err
	}
}
