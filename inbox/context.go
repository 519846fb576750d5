package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// Context returns the context of the handler that was given tx, or of the one that has begun tx as a savepoint. It is made from that of
// the call, so it ends with it, and has what a HandlerObserver has put there, such as a span that belongs to the trace of the message.
// MessageOf finds the message in it. The context of a tx that no handler was given is context.Background().
func Context(tx pgx.Tx) context.Context {
	if ctx := txn.ContextOf(tx); ctx != nil {
		return ctx
	}
	return context.Background()
}

// MessageOf returns the message whose handler has this context. There is none in that of a handler of Bulk.
func MessageOf(ctx context.Context) (Message, bool) {
	d, ok := ctx.Value(messageKey{}).(*delivery)
	if !ok {
		return Message{}, false
	}
	return d.Message, true
}

type messageKey struct{}

// handle runs fn for a group of messages, in the context that is theirs.
func (s *settings) handle(ctx context.Context, consumer string, group []*delivery, tx pgx.Tx, fn func(tx pgx.Tx) error) error {
	if len(group) == 1 {
		ctx = context.WithValue(ctx, messageKey{}, group[0])
	}
	observer, ok := s.observer.(HandlerObserver)
	if !ok {
		txn.Attach(ctx, tx)
		return fn(tx)
	}
	began, err := time.Now(), errExited // for one that panics, or ends its goroutine
	ctx = observer.TraceHandlerStart(ctx, startOf(consumer, group))
	defer func() {
		observer.TraceHandlerEnd(ctx, TraceHandlerEndData{Duration: time.Since(began), Err: err, Cause: idem.CauseOf(err)})
	}()
	txn.Attach(ctx, tx)
	err = fn(tx)
	return err
}

func startOf(consumer string, group []*delivery) TraceHandlerStartData {
	data := TraceHandlerStartData{Consumer: consumer, Messages: len(group)}
	for _, d := range group {
		if t, ok := traceOf(&d.Message); ok {
			data.Traces = append(data.Traces, t)
		}
	}
	return data
}
