package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/internal/panics"
)

// PublishEach sends the messages side by side, as [Publisher] promises, for brokers that confirm each message: send publishes one, and returns
// when the broker has it for good. blames says of an error of send whether it is the message's own, so that others can be published. Any other
// error ends the call, and blames none. A send that panics blames its message.
//
// The order of a key is the relay's: a Publisher that is no [OrderKeeper] is given one message of each key at a time.
func PublishEach(ctx context.Context, messages []Message, send func(context.Context, Message) error, blames func(error) bool) error {
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
			err := Recover(func() error { return send(ctx, m) })
			switch {
			case err == nil:
			case errors.Is(err, ErrPanicked) || blames(err):
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
		return &PublishError{Failed: failed}
	}
	return nil
}

// ErrPanicked is the error of a function of the application's that has panicked: a subject, a route, an address. It tells the type of the
// value and not what it says, which may be what is in a message.
var ErrPanicked = panics.ErrPanicked

// Recover returns what f returns, or ErrPanicked. A Publisher calls the application's functions by it in goroutines of its own, where a
// panic would end the process.
func Recover(f func() error) error { return panics.Try(f) }
