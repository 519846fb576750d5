package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/internal/panics"
)

// PublishEach implements Publish for a broker that confirms each message. It calls send for all
// messages concurrently. send publishes one message, and returns when the broker has stored it.
// isOwn reports whether an error of send concerns this message alone; PublishEach names the message
// in a [PublishError]. Any other error cancels the other sends and is returned as an error that
// names no message. A send that panics fails its message.
//
// The relay keeps the order of a key: it gives a Publisher that is not an [OrderKeeper] one message
// of each key at a time.
func PublishEach(ctx context.Context, messages []Message, send func(context.Context, Message) error,
	isOwn func(error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		sent   int
		failed = map[string]error{}
	)
	for _, m := range messages {
		wg.Go(func() {
			if ctx.Err() != nil {
				return
			}
			err := Recover(func() error { return send(ctx, m) })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				sent++
			case errors.Is(err, ErrPanicked) || isOwn(err):
				failed[m.ID] = err
			default:
				cancel(err)
			}
		})
	}
	wg.Wait()
	if sent == len(messages) {
		return nil // also if ctx has ended since
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(failed) > 0 {
		return &PublishError{Failed: failed}
	}
	return nil
}

// ErrPanicked is the error of a function of the application that has panicked. Its text has the
// type of the value only: the value may contain data of a message.
var ErrPanicked = panics.ErrPanicked

// Recover returns the error of f, or ErrPanicked if f panics. A Publisher uses it for functions of
// the application that it calls in its own goroutines, where a panic would end the process.
func Recover(f func() error) error { return panics.Try(f) }
