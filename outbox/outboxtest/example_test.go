package outboxtest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

// queue is your broker: a list in this example.
type queue struct {
	mu       sync.Mutex
	messages []outbox.Message
}

// Publish implements outbox.Publisher.
func (q *queue) Publish(ctx context.Context, messages []outbox.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	failed := map[string]error{}
	for _, m := range messages {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case m.Topic != "orders" || len(m.Payload) > 1<<20:
			failed[m.ID] = errors.New("the queue refuses the message")
		default:
			m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers) // the relay may change them after the call
			q.messages = append(q.messages, m)
		}
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}

// read returns the messages since the last call.
func (q *queue) read(context.Context) ([]outbox.Message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	messages := q.messages
	q.messages = nil
	return messages, nil
}

func ExampleRun() {
	var t *testing.T // of your test
	outboxtest.Run(t, outboxtest.Suite{
		Pool: newDatabase,
		New: func(t testing.TB) outboxtest.Target {
			q := &queue{}
			return outboxtest.Target{
				Publisher: q, Topic: "orders", Arrived: q.read,
				Bad: map[string]func(*outbox.Message){
					"no such topic": func(m *outbox.Message) { m.Topic = "returns" },
					"too large":     func(m *outbox.Message) { m.Payload = make([]byte, 2<<20) },
				},
			}
		},
	})
}

// newDatabase makes a database, applies the migrations, and returns a pool on it that is closed at
// the end of the test.
func newDatabase(t testing.TB) *pgxpool.Pool { panic("as your tests do it") }
