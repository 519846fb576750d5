package direct

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/txn"
)

// Handler applies the effect of a message, on tx. The rules of inbox.Batch apply to it.
type Handler func(tx pgx.Tx, m inbox.Message) error

var errNoTime = errors.New("the call had no time left for the message")

const (
	firstBatch     = 16
	shareOfCall    = 8 // a transaction should take at most an eighth of a call; the last eighth is for storing outcomes
	shareOfHandler = 2 // a handler has half of a call
)

// batch is the number of messages in a transaction. A call that is stopped during a transaction
// loses the work of that transaction. So batches are small at first. They grow while a transaction
// takes little of the time of a call.
type batch struct {
	mu         sync.Mutex
	limit      int
	perMessage time.Duration // in the last transaction
}

// size returns the size of a transaction of a call with some time left. It is at most limit, and 0
// if there is no time for a message.
func (b *batch) size(left time.Duration, limit int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit == 0 {
		b.limit = firstBatch
	}
	if b.perMessage > 0 {
		limit = min(limit, int(left/b.perMessage))
	}
	return min(b.limit, limit)
}

// adjust changes the limit after a transaction of a call of some length.
func (b *batch) adjust(messages int, took, length time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.perMessage = took / time.Duration(messages)
	switch {
	case took > length/shareOfCall:
		b.limit = max(messages/2, 1)
	case messages >= b.limit:
		b.limit = min(2*b.limit, 10_000)
	}
}

// timed returns handle with a deadline for each message. callBegan and length are the start and the
// length of the call of Publish.
//
// The end of a call counts no attempt. So a handler that always takes as long as a call would block
// every key, and would never fail. With half the time of a call, such a handler fails as with any
// other error, and there is time left to store the failure and to handle other messages. If the
// call ends before that half is over, no attempt counts, and the message is among the first of the
// next call.
func timed(handle Handler, callBegan time.Time, length time.Duration) Handler {
	limit := length / shareOfHandler
	last := callBegan.Add(length - length/shareOfCall)
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
			return fmt.Errorf("%w: %w", errNoTime, context.Canceled)
		}
		return fmt.Errorf("direct: the handler has exceeded %v, half of RelayConfig.PublishTimeout; increase PublishTimeout: %w",
			limit, context.DeadlineExceeded)
	}
}

// withoutDeadline returns a context that is canceled with ctx, but outlasts its deadline by length.
// The outcomes of a call are stored in that time.
func withoutDeadline(ctx context.Context, length time.Duration) (context.Context, context.CancelFunc) {
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
