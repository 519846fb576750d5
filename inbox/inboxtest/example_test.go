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

// queue is a broker of your own, which is nothing but a channel here: a message that is not acknowledged is put back.
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

// consume is the consumer that is tested.
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
	var t *testing.T // that of the test
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

// newDatabase makes a database, applies the migrations, and returns a pool on it that is closed at the end of the test.
func newDatabase(testing.TB) *pgxpool.Pool { panic("as your tests do it") }
