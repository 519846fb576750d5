// Package fanout publishes the messages of a call side by side, for brokers that confirm each message. The order of a key
// is the relay's: a Publisher that is no [outbox.OrderKeeper] is given one message of each key at a time.
package fanout

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/outbox"
)

// Send publishes one message, and returns when the broker has it for good.
type Send func(context.Context, outbox.Message) error

// Publish sends the messages, as [outbox.Publisher] promises. blames says of an error of send whether it is the message's
// own, so that others can be published: any other error ends the call, and blames none. A send that panics blames its message.
func Publish(ctx context.Context, messages []outbox.Message, send Send, blames func(error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed = map[string]error{}
	)
	for _, m := range messages {
		wg.Go(func() {
			if ctx.Err() != nil {
				return
			}
			err := guard.Call(func() error { return send(ctx, m) })
			_, panicked := errors.AsType[*guard.Panic](err)
			switch {
			case err == nil:
			case panicked || blames(err):
				mu.Lock()
				defer mu.Unlock()
				failed[m.ID] = err
			default:
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}
