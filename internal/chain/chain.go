// Package chain publishes messages so that none overtakes an earlier one of its topic and key, whatever the broker does
// meanwhile: the next one of a key is sent when the broker has confirmed the one before. Different keys do not wait for
// one another.
//
// Sending all at once would be faster for a single key, and wrong: a broker may refuse one message and take the next, and
// a connection may be lost between two.
package chain

import (
	"context"
	"errors"
	"fmt"
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
	for _, chain := range chains(messages) {
		wg.Go(func() {
			for i, m := range chain {
				if ctx.Err() != nil {
					return
				}
				err := guard.Call(func() error { return send(ctx, m) })
				if err == nil {
					continue
				}
				if _, panicked := errors.AsType[*guard.Panic](err); !panicked && !blames(err) {
					cancel(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				failed[m.ID] = err
				for _, later := range chain[i+1:] {
					failed[later.ID] = fmt.Errorf("it has to wait for %s, an earlier message of its key: %w", m.ID, err)
				}
				return
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

// chains returns the messages of each topic and key, in order. A message without a key is alone.
func chains(messages []outbox.Message) [][]outbox.Message {
	type name struct{ topic, key string }
	var all [][]outbox.Message
	place := map[name]int{}
	for _, m := range messages {
		key := name{m.Topic, m.Key}
		i, known := place[key]
		if m.Key == "" || !known {
			i = len(all)
			all = append(all, nil)
			place[key] = i
		}
		all[i] = append(all[i], m)
	}
	return all
}
