package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

func newPool(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }

func TestRun_PassesAGoodConsumer(t *testing.T) {
	t.Parallel()
	Run(t, suite(nil))
}

// broken are consumers that break one rule each, and a part of the failure that the rule reports.
var broken = []struct {
	name, rule, failure string
	change              func(*consumer)
}{
	{"uses no inbox", "HandlesEachMessageOnce", "had its effect 2 times", each(func(ctx context.Context, c *consumer, m inbox.Message, _ Handle, _ []inbox.Option) {
		if pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return effect(tx, m) }) == nil {
			c.ack(m.ID)
		}
	})},
	{"gives each delivery an ID of its own", "HandlesEachMessageOnce", "have no effect", func(c *consumer) { c.given = func(m *inbox.Message) { m.ID = outbox.NewID() } }},
	{"loses the headers", "HandlesEachMessageOnce", "another message than was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Headers = nil } }},
	{"loses the key", "HandlesEachMessageOnce", "another message than was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Key = "" } }},
	{"loses the type", "HandlesEachMessageOnce", "another message than was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Type = "" } }},
	{"changes payloads", "HandlesEachMessageOnce", "another message than was delivered", func(c *consumer) {
		c.given = func(m *inbox.Message) { m.Payload = []byte(strings.ToUpper(string(m.Payload))) }
	}},
	{"acknowledges no duplicates", "HandlesEachMessageOnce", "are left in the broker", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, out inbox.Outcome) {
			if out.State != inbox.Duplicate {
				acknowledge(c, m, out)
			}
		}
	}},
	{"acknowledges before it handles", "StopsAndResumes", "calls of the handler did not happen", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		c.ack(m.ID)
		once(ctx, c, m, handle, options)
	})},
	{"does not end", "StopsAndResumes", "did not return", func(c *consumer) { c.noEnd = true }},
	{"acknowledges before the commit", "AcknowledgesAfterCommit", "calls of the handler did not happen", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		once(ctx, c, m, func(tx pgx.Tx, m inbox.Message) error {
			err := handle(tx, m)
			if err == nil {
				c.ack(m.ID)
			}
			return err
		}, options)
	})},
	{"drops failed messages", "RetriesAFailedMessage", "have no effect", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, _ inbox.Outcome) { c.ack(m.ID) }
	}},
	{"dead-letters after one failure", "RetriesAFailedMessage", "have no effect", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		acknowledge(c, m, once(ctx, c, m, handle, append(options, inbox.WithMaxAttempts(1))))
	})},
	{"drops failed messages", "DeadLettersAFailingMessage", "dead letters, want", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, _ inbox.Outcome) { c.ack(m.ID) }
	}},
	{"stops at a failing message", "DeadLettersAFailingMessage", "Run returned before", func(c *consumer) {
		c.batch = func(ctx context.Context, c *consumer, messages []inbox.Message, handle Handle, options []inbox.Option) error {
			for _, m := range messages {
				if out := once(ctx, c, m, handle, options); out.Err != nil {
					return out.Err
				}
				c.ack(m.ID)
			}
			return nil
		}
	}},
	{"blocks behind a failing message", "DeadLettersAFailingMessage", "have no effect", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		if c.next()[0].ID == m.ID && once(ctx, c, m, handle, options).Err == nil {
			c.ack(m.ID)
		}
	})},
	{"calls the handler twice in an attempt", "DeadLettersAFailingMessage", "its handler was called", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		acknowledge(c, m, once(ctx, c, m, func(tx pgx.Tx, m inbox.Message) error {
			err := quietly(handle, tx, m)
			if err != nil {
				err = errors.Join(err, quietly(handle, tx, m))
			}
			return err
		}, options))
	})},
	{"acknowledges no dead letters", "DeadLettersAFailingMessage", "are left in the broker", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, out inbox.Outcome) {
			if out.State != inbox.Dead {
				acknowledge(c, m, out)
			}
		}
	}},
	{"handles no redriven messages", "HandlesRedrivenDeadLetters", "have no effect", func(c *consumer) { c.noRedriven = true }},
	{"handles messages behind a failed one", "KeepsTheOrderOfAKey", "out of order", func(c *consumer) { c.ordered = false }},
}

// quietly calls a handler that may panic.
func quietly(handle Handle, tx pgx.Tx, m inbox.Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%v", value)
		}
	}()
	return handle(tx, m)
}

// timeouts are failures that a rule reports after Suite.Patience.
var timeouts = []string{
	"have no effect", "calls of the handler did not happen", "are left in the broker", "did not return", "dead letters, want", "Run returned before",
}

func TestRules_FindABrokenConsumer(t *testing.T) {
	t.Parallel()
	checks := map[string]func(testing.TB, Suite){}
	for _, r := range rules {
		checks[r.name] = r.check
	}
	found := map[string]bool{}
	for _, b := range broken {
		check := checks[b.rule]
		found[b.rule] = true
		t.Run(b.rule+": "+b.name, func(t *testing.T) {
			t.Parallel()
			output := untilFailure(b.failure, func(patience time.Duration) string {
				s := suite(b.change)
				s.Patience = patience
				return outputOf(t, func(t testing.TB) { check(t, s) })
			})
			if !strings.Contains(output, b.failure) {
				t.Errorf("the rule reports %q, want a failure with %q", output, b.failure)
			}
		})
	}
	if len(found) != len(rules) {
		t.Errorf("%d of %d rules have a consumer that breaks them", len(found), len(rules))
	}
}

// untilFailure runs a rule and returns its output. For a timeout, the patience is short at first,
// to keep the test short. On a busy machine another event may time out first; then it is longer.
func untilFailure(failure string, rule func(patience time.Duration) string) (output string) {
	if !slices.Contains(timeouts, failure) {
		return rule(0)
	}
	for patience := 3 * time.Second; patience < 2*time.Minute && !strings.Contains(output, failure); patience *= 10 {
		output = rule(patience)
	}
	return output
}

// recorder is a test that collects its failures instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	output strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.output, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// outputOf returns the failures that a check reports.
func outputOf(t *testing.T, check func(testing.TB)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check(r)
	}()
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}
