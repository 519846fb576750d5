package inboxtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// consumer is a consumer of a broker in memory, which delivers messages until they are
// acknowledged. It keeps all rules, except where a test changes it.
type consumer struct {
	mu    sync.Mutex
	queue []inbox.Message
	pool  *pgxpool.Pool

	change  func(m *inbox.Message)                          // before the inbox gets the message
	handles func(ctx context.Context, m inbox.Message) bool // replaces the handling; whether to acknowledge
	acks    func(out inbox.Outcome) bool
	early   bool // acknowledges before it handles
	options []inbox.Option
	noEnd   bool
	redrive bool
}

func (c *consumer) deliver(_ context.Context, messages ...inbox.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		m.Source = "orders"
		c.queue = append(c.queue, m)
	}
	return nil
}

func (c *consumer) left(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue), nil
}

// next returns up to 100 messages without removing them.
func (c *consumer) next() []inbox.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.queue[:min(100, len(c.queue))])
}

// ack removes one delivery of a message.
func (c *consumer) ack(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.queue, func(m inbox.Message) bool { return m.ID == id }); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
}

func (c *consumer) run(ctx context.Context, handle Handle, options ...inbox.Option) error {
	options = append(options, c.options...)
	if c.redrive {
		var redriving sync.WaitGroup
		redriving.Go(func() { _ = inbox.RunRedrives(ctx, c.pool, "billing", handle, inbox.RedriveConfig{Options: options}) })
		defer redriving.Wait()
	}
	for began := time.Now(); ctx.Err() == nil || c.noEnd && time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		messages := c.next()
		for i, m := range messages {
			if c.handles != nil && c.handles(ctx, m) || c.early {
				c.ack(m.ID)
			}
			if c.change != nil {
				c.change(&messages[i])
			}
		}
		if c.handles != nil {
			continue
		}
		outcomes, _ := inbox.Batch(ctx, c.pool, "billing", messages, handle, options...)
		for i, out := range outcomes {
			if c.acks(out) {
				c.ack(messages[i].ID)
			}
		}
	}
	return nil
}

// suite returns a Suite for a consumer after change.
func suite(change func(*consumer)) Suite {
	return Suite{Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: func(_ testing.TB, pool *pgxpool.Pool) Source {
		c := &consumer{
			pool: pool, options: []inbox.Option{inbox.WithOrder()}, redrive: true,
			acks: func(out inbox.Outcome) bool { return out.State != inbox.Retry },
		}
		change(c)
		return Source{Name: "billing", Deliver: c.deliver, Run: c.run, Left: c.left, Ordered: true}
	}}
}

// broken are consumers that break one rule each, and a part of the failure that the rule reports.
// The patience is how long the suite waits for an event, if it finds the failure by that.
var broken = []struct {
	name, rule, failure string
	patience            time.Duration
	change              func(*consumer)
}{
	{"uses no inbox", "HandlesEachMessageOnce", "had its effect 2 times", 0, func(c *consumer) {
		c.handles = func(ctx context.Context, m inbox.Message) bool {
			return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return effect(tx, m) }) == nil
		}
	}},
	{"loses the headers", "HandlesEachMessageOnce", "another message than was delivered", 0, func(c *consumer) {
		c.change = func(m *inbox.Message) { m.Headers = nil }
	}},
	{"does not end", "StopsAndResumes", "did not return", time.Second, func(c *consumer) { c.noEnd = true }},
	{"acknowledges before it handles", "AcknowledgesAfterCommit", "have no effect", time.Second, func(c *consumer) { c.early = true }},
	{"drops failed messages", "RetriesAFailedMessage", "have no effect", time.Second, func(c *consumer) {
		c.acks = func(inbox.Outcome) bool { return true }
	}},
	{"acknowledges no dead letters", "DeadLettersAFailingMessage", "are left in the broker", time.Second, func(c *consumer) {
		c.acks = func(out inbox.Outcome) bool { return out.State != inbox.Retry && out.State != inbox.Dead }
	}},
	{"handles no redriven messages", "HandlesRedrivenDeadLetters", "have no effect", time.Second, func(c *consumer) { c.redrive = false }},
	{"handles messages behind a failed one", "KeepsTheOrderOfAKey", "out of order", 0, func(c *consumer) { c.options = nil }},
}

func TestRules_FindABrokenConsumer(t *testing.T) {
	t.Parallel()
	checks := map[string]func(testing.TB, Suite){}
	for _, r := range rules {
		checks[r.name] = r.check
	}
	for _, b := range broken {
		check := checks[b.rule]
		t.Run(b.rule+": "+b.name, func(t *testing.T) {
			t.Parallel()
			s, output := suite(b.change), ""
			// On a busy machine another event may time out first; then the patience is longer.
			for s.Patience = b.patience; ; s.Patience *= 10 {
				output = waiting.Failures(t, func(t testing.TB) { check(t, s) })
				if s.Patience == 0 || s.Patience > time.Minute || strings.Contains(output, b.failure) {
					break
				}
			}
			if !strings.Contains(output, b.failure) {
				t.Errorf("the rule reports %q, want a failure with %q", output, b.failure)
			}
		})
	}
}
