package inboxtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
)

// queue is a broker in memory. A message that is not acknowledged is put back.
type queue chan inbox.Message

func (q queue) send(ctx context.Context, messages ...inbox.Message) error {
	for _, m := range messages {
		m.Source = "orders"
		select {
		case q <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// consume is the consumer under test.
func (q queue) consume(ctx context.Context, pool *pgxpool.Pool, handle inboxtest.Handle, options ...inbox.Option) error {
	go func() { _ = inbox.RunRedrives(ctx, pool, "billing", handle, inbox.RedriveConfig{Options: options}) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-q:
			out, _ := inbox.Handle(ctx, pool, "billing", m, func(tx pgx.Tx) error { return handle(tx, m) }, options...)
			if out.State == inbox.Retry {
				time.AfterFunc(time.Until(out.RetryAt), func() { q <- m })
			}
		}
	}
}

func ExampleRun() {
	var t *testing.T // of the test function
	inboxtest.Run(t, inboxtest.Suite{
		Pool: newDatabase,
		New: func(_ testing.TB, pool *pgxpool.Pool) inboxtest.Source {
			q := make(queue, 1000)
			return inboxtest.Source{
				Name: "billing", Deliver: q.send,
				Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
					return q.consume(ctx, pool, handle, options...)
				},
				Left: func(context.Context) (int, error) { return len(q), nil },
			}
		},
	})
}

// newDatabase creates a database with the schema, and returns a pool that a Cleanup closes.
func newDatabase(testing.TB) *pgxpool.Pool { panic("not implemented") }
