package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// Context returns the context of the handler that received tx, or that began tx as a savepoint. The
// context is derived from the context of the call. It has the values that a HandlerObserver added,
// such as a span in the trace of the message. MessageOf returns the message from it. For any other
// tx, Context returns context.Background().
func Context(tx pgx.Tx) context.Context {
	if ctx := txn.ContextOf(tx); ctx != nil {
		return ctx
	}
	return context.Background()
}

type messageKey struct{}

// MessageOf returns the message of the handler whose context is ctx. It returns false if the
// handler received several messages, or if ctx is not the context of a handler.
func MessageOf(ctx context.Context) (Message, bool) {
	d, ok := ctx.Value(messageKey{}).(*delivery)
	if !ok {
		return Message{}, false
	}
	return d.Message, true
}

// runHandler calls fn for a group of messages, with their context attached to tx.
func (c *consumer) runHandler(ctx context.Context, group []*delivery, tx pgx.Tx, fn func(tx pgx.Tx) error) error {
	if len(group) == 1 {
		ctx = context.WithValue(ctx, messageKey{}, group[0])
	}
	observer, ok := c.observer.(HandlerObserver)
	if !ok {
		txn.Attach(ctx, tx)
		return fn(tx)
	}
	data := TraceHandlerStartData{Consumer: c.name, Messages: len(group)}
	for _, d := range group {
		if t, ok := traceOf(&d.Message); ok {
			data.Traces = append(data.Traces, t)
		}
	}
	began, err := time.Now(), errExited // unless fn returns
	ctx = observer.TraceHandlerStart(ctx, data)
	defer func() {
		observer.TraceHandlerEnd(ctx, TraceHandlerEndData{Duration: time.Since(began), Err: err, Cause: idem.CauseOf(err)})
	}()
	txn.Attach(ctx, tx)
	err = fn(tx)
	return err
}
