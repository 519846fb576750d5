package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem/internal/panics"
)

// PublishEach implements Publish for a broker that confirms each message. It calls send for all
// messages concurrently. send publishes one message, and returns when the broker has stored it.
// isOwn reports whether an error of send concerns only the message of that send. If so, PublishEach
// names this message in a [PublishError]. Any other error cancels the other sends, and PublishEach
// returns this error, which names no message. If send panics, only its message has failed.
//
// Concurrent sends keep the order of a key, because the relay passes a Publisher that is not an
// [OrderKeeper] only one message of each key at a time.
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
		return nil // even if ctx has ended by now
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(failed) > 0 {
		return &PublishError{Failed: failed}
	}
	return nil
}

// ErrPanicked is the error of a function of the application that has panicked. The text of the
// error shows only the type of the panic value, because the value may contain data of a message.
var ErrPanicked = panics.ErrPanicked

// Recover returns the error of f, or ErrPanicked if f panics. A Publisher uses it for functions of
// the application that it calls in its own goroutines, where a panic would end the process.
func Recover(f func() error) error { return panics.Try(f) }
