package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// hangLimit is how long a call of a Publisher may go on after the end of its context.
const hangLimit = 5 * time.Second

// errHung says that the Publisher has not returned. Its messages may be published at any time.
var errHung = errors.New("the Publisher has not returned although its context has ended")

// panicked is the error of a Publisher that has panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("the Publisher has panicked: %v", p.value) }

// Class is that of the dead letter.
func (*panicked) Class() string { return "panic" }

// call is one call of a Publisher, in a goroutine of its own: it cannot be trusted to return.
type call struct {
	ended chan struct{}
	err   error
}

func startCall(ctx context.Context, publisher Publisher, messages []Message) *call {
	c := &call{ended: make(chan struct{}), err: &panicked{value: "its goroutine was ended"}}
	go func() {
		defer close(c.ended)
		defer func() {
			if value := recover(); value != nil {
				c.err = &panicked{value: value, stack: debug.Stack()}
			}
		}()
		c.err = publisher.Publish(ctx, messages)
	}()
	return c
}

// caller calls a Publisher on behalf of a post.
type caller struct {
	publisher Publisher
	config    *RelayConfig
	post      *post
	size      int // how many messages it gets at a time
}

// fit makes calls smaller while the Publisher has trouble with them as a whole, and larger again.
func (c *caller) fit(err error) {
	if err != nil {
		c.size = max(c.size/2, 1)
		return
	}
	c.size = min(2*c.size, c.config.BatchSize)
}

// publish makes a call, and shows meanwhile that this process is there. After errHung, hung is the call that goes on.
func (c *caller) publish(ctx context.Context, messages []Message) (hung *call, err error) {
	if err := c.post.signIfDue(ctx); err != nil {
		return nil, err
	}
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.PublishTimeout)
	defer cancel()
	under := startCall(calling, c.publisher, messages)
	sign := time.NewTicker(signPause)
	defer sign.Stop()
	stopped, hanging := ctx.Done(), calling.Done()
	var draining, patience <-chan time.Time
	for {
		select {
		case <-under.ended:
			return nil, under.err
		case <-sign.C:
			if err := c.post.sign(context.WithoutCancel(ctx)); err != nil {
				cancel()
			}
		case <-stopped:
			stopped, draining = nil, time.After(c.config.Drain)
		case <-draining:
			cancel()
		case <-hanging:
			hanging, patience = nil, time.After(hangLimit)
		case <-patience:
			return under, errHung
		}
	}
}

// verdict sorts out what a Publisher has answered: which messages of the call have failed, by their index, and the error, if
// there is one, that blames none. With such an error unknown is whether those were published that have not failed.
func verdict(messages []Message, err error) (failed map[int]error, blameless error, unknown bool) {
	var named *PublishError
	if !errors.As(err, &named) || len(named.Failed) == 0 {
		return nil, err, err != nil
	}
	failed = map[int]error{}
	met := 0
	for i, m := range messages {
		reason, ok := named.Failed[m.ID]
		if !ok {
			continue
		}
		met++
		if reason == nil {
			reason = errors.New("the Publisher gave no reason")
		}
		failed[i] = reason
	}
	if met < len(named.Failed) { // whatever it takes for the ID of a message: of the others it may be one that has failed
		return failed, fmt.Errorf("the Publisher has named %d messages that it was not given", len(named.Failed)-met), true
	}
	return failed, nil, false
}

// ended reports whether an error only says that a context is over.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
