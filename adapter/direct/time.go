package direct

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/txn"
)

// A handler that takes as long as a call would take the time of every key with it, again in each call, without being to blame for it: what a
// call cuts off has not failed. So a handler has half of a call. One that takes longer has failed, as with any other error, while there is time to
// put that on record and to go on with others. One that began too late for that is not to blame: in the next call it is among the first.
const shareOfHandler = 2

var errNoTime = errors.New("there was no time for it")

func timed(handle Handler, call time.Time, length time.Duration) Handler {
	limit := length / shareOfHandler
	last := call.Add(length - length/shareOfCall)
	return func(tx pgx.Tx, m inbox.Message) error {
		whole, began := inbox.Context(tx), time.Now()
		end := began.Add(limit)
		if last.Before(end) {
			end = last
		}
		ctx, cancel := context.WithDeadline(whole, end)
		defer cancel()
		txn.Attach(ctx, tx)
		err := handle(tx, m)
		switch {
		case err == nil || ctx.Err() == nil || whole.Err() != nil:
			return err
		case time.Since(began) < limit:
			return fmt.Errorf("%w, behind others: %w", errNoTime, context.Canceled)
		}
		return fmt.Errorf("direct: the handler was not done within %v, half of the relay's PublishTimeout: %w", limit, context.DeadlineExceeded)
	}
}

// beyond returns a context that outlasts the end of the call's time, for what is put on record then, and ends with ctx if that is cancelled.
func beyond(ctx context.Context, length time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			time.AfterFunc(length, cancel)
		} else {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}
