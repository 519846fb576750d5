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

// perEndpoint is the maximum number of messages to one endpoint that are sent concurrently.
const perEndpoint = 4

// queue contains messages that are sent one after the other: the messages of one topic and key, or
// one message without a key.
type queue []outbox.Message

// queuesByTopic divides messages into queues. The queues of a topic are in the order of their first
// messages.
func queuesByTopic(messages []outbox.Message) map[string][]queue {
	queues := map[string][]queue{}
	type name struct{ topic, key string }
	index := map[name]int{}
	for _, m := range messages {
		at, ok := index[name{m.Topic, m.Key}]
		if m.Key == "" || !ok {
			index[name{m.Topic, m.Key}] = len(queues[m.Topic])
			queues[m.Topic] = append(queues[m.Topic], queue{m})
			continue
		}
		queues[m.Topic][at] = append(queues[m.Topic][at], m)
	}
	return queues
}

// publication is one call of Publish.
type publication struct {
	endpoint func(ctx context.Context, topic string) (Endpoint, error)
	sender   sender
	backoffs *backoffs
	slots    chan struct{} // has an element for each message in progress
	timeout  time.Duration // for one message

	mu     sync.Mutex
	failed map[string]error
}

// sendTopic sends the messages of a topic, from up to perEndpoint queues concurrently.
func (c *publication) sendTopic(ctx context.Context, topic string, queues []queue) {
	target, err := c.target(ctx, topic)
	if err != nil {
		for _, q := range queues {
			c.fail(q, err)
		}
		return
	}
	next := make(chan queue)
	var senders sync.WaitGroup
	for range min(perEndpoint, len(queues)) {
		senders.Go(func() {
			for q := range next {
				c.sendQueue(ctx, target, q)
			}
		})
	}
	for _, q := range queues {
		next <- q
	}
	close(next)
	senders.Wait()
}

// target asks PublisherConfig.Endpoint for the endpoint of a topic. The call of this function
// counts as a message in progress.
func (c *publication) target(ctx context.Context, topic string) (*target, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
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
		err = fmt.Errorf("webhook: PublisherConfig.Endpoint did not return in time: %v", err)
		return nil, outbox.RetryLater(err, minBackoff)
	case txn.Transient(err): // the database that Endpoint uses is unavailable
		return nil, outbox.RetryLater(fmt.Errorf("webhook: PublisherConfig.Endpoint: %w", err), minBackoff)
	}
	return nil, fmt.Errorf("webhook: PublisherConfig.Endpoint has no endpoint for the topic: %w", err)
}

// sendQueue sends the messages of a queue until one fails. The messages after it fail with
// ErrHeldBack.
func (c *publication) sendQueue(ctx context.Context, t *target, q queue) {
	for i, m := range q {
		if err := c.send(ctx, t, m); err != nil {
			c.fail(q[i:i+1], err)
			c.fail(q[i+1:], fmt.Errorf("%w: %w", ErrHeldBack, err))
			return
		}
	}
}

func (c *publication) send(ctx context.Context, t *target, m outbox.Message) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	if err := c.backoffs.check(t.topic, c.sender.now()); err != nil {
		return err
	}
	err := panics.Try(func() error { return t.post(ctx, m, c.timeout) })
	if _, answered := errors.AsType[*StatusError](err); ctx.Err() != nil && !answered {
		return err // the call has ended, so the error shows nothing about the endpoint
	}
	if c.backoffs.note(t.topic, m.ID, err, c.sender.now()) {
		return outbox.RetryLater(asTimeout(err), max(c.backoffs.left(t.topic, c.sender.now()), minBackoff))
	}
	return asTimeout(err)
}

// acquire takes a slot for a message, after waiting until one is free. It fails if ctx has ended,
// or if ctx ends before a message could use its whole timeout. Then the next call sends the message
// again.
func (c *publication) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return noTime(ctx.Err())
	}
	err := ctx.Err()
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < c.timeout {
		err = context.DeadlineExceeded
	}
	if err != nil {
		c.release()
		return noTime(err)
	}
	return nil
}

func noTime(err error) error {
	return outbox.RetryLater(fmt.Errorf("webhook: the call had no time left for the message: %w", err), 0)
}

func (c *publication) release() { <-c.slots }

func (c *publication) fail(messages []outbox.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		c.failed[m.ID] = err
	}
}
