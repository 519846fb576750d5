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

// Handler makes the effect of a message on tx. As in a call of inbox.Batch, it must not keep tx,
// commit it or roll it back.
type Handler func(tx pgx.Tx, m inbox.Message) error

var errNoTime = errors.New("the call had no time left for the message")

const (
	firstBatch     = 16
	shareOfCall    = 8 // a transaction should take at most an eighth of a call; none starts in the last eighth
	shareOfHandler = 2 // a handler gets at most half of the time of a call
)

// batch adapts the number of messages in a transaction. If a call ends during a transaction, the
// work of the transaction is lost. So the number is small at first, and grows while a transaction
// takes little of the time of a call.
type batch struct {
	mu         sync.Mutex
	limit      int
	perMessage time.Duration // the average time of a message in the last transaction
}

// size returns the number of messages for the next transaction of a call. left is the time until
// the call ends. The number is at most the parameter limit, and 0 if the time does not suffice for
// a message.
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

// adjust changes the number of messages after a transaction that took some time of a call. length
// is the time of the whole call.
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

// timed returns a Handler that calls handle with a deadline for each message. callBegan is the
// start of the call of Publish, and length is the time of the whole call.
//
// If a call ends during a handler, no attempt counts. So without a deadline, a handler that always
// takes longer than a call would block the other messages forever. With a deadline after half the
// time of a call, such a handler fails and an attempt counts, and the call has time to store the
// failure and to handle other messages. If a handler begins so late that the call ends before the
// handler has had half the time, no attempt counts, and the message is among the first of the next
// call.
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

// withoutDeadline returns a context that is canceled at once when ctx is canceled. When the
// deadline of ctx passes, the returned context stays valid for the duration length, in which the
// outcomes of a call are stored.
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
