package inboxtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// memory is a broker in memory. It delivers messages until they are acknowledged.
type memory struct {
	mu    sync.Mutex
	queue []inbox.Message
}

func (q *memory) deliver(_ context.Context, messages ...inbox.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range messages {
		m.Source = "orders"
		q.queue = append(q.queue, m)
	}
	return nil
}

func (q *memory) left(context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue), nil
}

// next returns up to 100 messages without removing them.
func (q *memory) next() []inbox.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.queue[:min(100, len(q.queue))])
}

// ack removes one delivery of a message.
func (q *memory) ack(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.queue, func(m inbox.Message) bool { return m.ID == id }); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
	}
}

// consumer keeps all rules, except where a test changes it.
type consumer struct {
	*memory
	pool *pgxpool.Pool

	ordered    bool
	handled    func(c *consumer, m inbox.Message, out inbox.Outcome) // replaces acknowledge
	batch      func(ctx context.Context, c *consumer, messages []inbox.Message, handle Handle, options []inbox.Option) error
	given      func(m *inbox.Message) // changes a message before the inbox gets it
	noRedriven bool
	noEnd      bool
}

func (c *consumer) source() Source {
	return Source{Name: "billing", Deliver: c.deliver, Run: c.run, Left: c.left, Ordered: true}
}

func (c *consumer) run(ctx context.Context, handle Handle, options ...inbox.Option) error {
	if c.ordered {
		options = append(options, inbox.WithOrder())
	}
	if !c.noRedriven {
		ended := make(chan struct{})
		redriving, stop := context.WithCancel(ctx)
		go func() {
			defer close(ended)
			_ = inbox.RunRedrives(redriving, c.pool, "billing", handle, inbox.RedriveConfig{Options: options})
		}()
		defer func() { stop(); <-ended }()
	}
	for began := time.Now(); ctx.Err() == nil || c.noEnd && time.Since(began) < time.Minute; {
		messages := c.next()
		if c.given != nil {
			for i := range messages {
				c.given(&messages[i])
			}
		}
		if err := c.batch(ctx, c, messages, handle, options); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// batch handles messages by the inbox, and acknowledges those with an outcome.
func batch(ctx context.Context, c *consumer, messages []inbox.Message, handle Handle, options []inbox.Option) error {
	outcomes, _ := inbox.Batch(ctx, c.pool, "billing", messages, handle, options...)
	for i, out := range outcomes {
		c.handled(c, messages[i], out)
	}
	return nil
}

func acknowledge(c *consumer, m inbox.Message, out inbox.Outcome) {
	if out.State != inbox.Retry {
		c.ack(m.ID)
	}
}

// suite returns a Suite for a consumer after change.
func suite(change func(*consumer)) Suite {
	return Suite{Pool: newPool, New: func(_ testing.TB, pool *pgxpool.Pool) Source {
		c := &consumer{memory: &memory{}, pool: pool, ordered: true, handled: acknowledge, batch: batch}
		if change != nil {
			change(c)
		}
		return c.source()
	}}
}

// each makes the consumer call f for each message. f acknowledges the message.
func each(f func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option)) func(*consumer) {
	return func(c *consumer) {
		c.batch = func(ctx context.Context, c *consumer, messages []inbox.Message, handle Handle, options []inbox.Option) error {
			for _, m := range messages {
				f(ctx, c, m, handle, options)
			}
			return nil
		}
	}
}

// once handles one message by the inbox.
func once(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) inbox.Outcome {
	out, _ := inbox.Handle(ctx, c.pool, "billing", m, func(tx pgx.Tx) error { return handle(tx, m) }, options...)
	return out
}
