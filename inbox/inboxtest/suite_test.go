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

func TestConsumerThatKeepsItsPromisesPasses(t *testing.T) {
	t.Parallel()
	Run(t, suite(nil))
}

// broken are consumers each of which breaks the promise of a rule, and what that says.
var broken = []struct {
	name, rule, says string
	change           func(*consumer)
}{
	{"knows no inbox", "effectOnce", "has had its effect 2 times", each(func(ctx context.Context, c *consumer, m inbox.Message, _ Handle, _ []inbox.Option) {
		if pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return effect(tx, m) }) == nil {
			c.ack(m.ID)
		}
	})},
	{"gives each delivery an id of its own", "effectOnce", "have no effect", func(c *consumer) { c.given = func(m *inbox.Message) { m.ID = outbox.NewID() } }},
	{"loses the headers", "effectOnce", "is not what was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Headers = nil } }},
	{"loses the key", "effectOnce", "is not what was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Key = "" } }},
	{"loses the type", "effectOnce", "is not what was delivered", func(c *consumer) { c.given = func(m *inbox.Message) { m.Type = "" } }},
	{"changes payloads", "effectOnce", "is not what was delivered", func(c *consumer) {
		c.given = func(m *inbox.Message) { m.Payload = []byte(strings.ToUpper(string(m.Payload))) }
	}},
	{"acknowledges no duplicates", "effectOnce", "are left in the broker", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, out inbox.Outcome) {
			if out.State != inbox.Duplicate {
				acknowledge(c, m, out)
			}
		}
	}},
	{"acknowledges what it is about to do", "stopped", "no handler was called", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		c.ack(m.ID)
		once(ctx, c, m, handle, options)
	})},
	{"does not end", "stopped", "it goes on", func(c *consumer) { c.noEnd = true }},
	{"acknowledges before the commit", "afterCommit", "no handler was called", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		once(ctx, c, m, func(tx pgx.Tx, m inbox.Message) error {
			err := handle(tx, m)
			if err == nil {
				c.ack(m.ID)
			}
			return err
		}, options)
	})},
	{"drops what fails", "triedAgain", "have no effect", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, _ inbox.Outcome) { c.ack(m.ID) }
	}},
	{"makes a dead letter of the first failure", "triedAgain", "have no effect", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		acknowledge(c, m, once(ctx, c, m, handle, append(options, inbox.WithMaxAttempts(1))))
	})},
	{"drops what fails", "poison", "dead letters, want", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, _ inbox.Outcome) { c.ack(m.ID) }
	}},
	{"stops at poison", "poison", "has ended by itself", func(c *consumer) {
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
	{"waits for ever behind poison", "poison", "have no effect", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		if c.next()[0].ID == m.ID && once(ctx, c, m, handle, options).Err == nil {
			c.ack(m.ID)
		}
	})},
	{"has attempts of its own", "poison", "attempts, and was tried", each(func(ctx context.Context, c *consumer, m inbox.Message, handle Handle, options []inbox.Option) {
		acknowledge(c, m, once(ctx, c, m, func(tx pgx.Tx, m inbox.Message) error {
			err := quietly(handle, tx, m)
			if err != nil {
				err = errors.Join(err, quietly(handle, tx, m))
			}
			return err
		}, options))
	})},
	{"keeps poison in the broker", "poison", "are left in the broker", func(c *consumer) {
		c.handled = func(c *consumer, m inbox.Message, out inbox.Outcome) {
			if out.State != inbox.Dead {
				acknowledge(c, m, out)
			}
		}
	}},
	{"knows nothing of redriven messages", "redriven", "have no effect", func(c *consumer) { c.noRedriven = true }},
	{"goes on behind what fails", "inOrder", "out of order", func(c *consumer) { c.ordered = false }},
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

// inVain is what a rule says when its patience is over.
var inVain = []string{"have no effect", "no handler was called", "are left in the broker", "it goes on", "dead letters, want", "has ended by itself"}

func TestConsumerThatBreaksAPromiseIsFoundByItsRule(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, b := range broken {
		check := named[b.rule]
		found[b.rule] = true
		t.Run(b.rule+": "+b.name, func(t *testing.T) {
			t.Parallel()
			said := untilSaid(b.says, func(patience time.Duration) string {
				s := suite(b.change)
				s.Patience = patience
				return verdict(t, func(t testing.TB) { check(t, s) })
			})
			if !strings.Contains(said, b.says) {
				t.Errorf("the rule says %q, want something with %q", said, b.says)
			}
		})
	}
	if len(found) != len(rules) {
		t.Errorf("%d of %d rules have a consumer that breaks them", len(found), len(rules))
	}
}

// untilSaid returns what a rule says. Where that is said in vain, the patience is short at first, so that the test is: on a busy machine
// something else may not come in time, and then it is longer.
func untilSaid(says string, rule func(patience time.Duration) string) (said string) {
	if !slices.Contains(inVain, says) {
		return rule(0)
	}
	for patience := 3 * time.Second; patience < 2*time.Minute && !strings.Contains(said, says); patience *= 10 {
		said = rule(patience)
	}
	return said
}

// named are the rules.
var named = map[string]func(testing.TB, Suite){
	"effectOnce": effectOnce, "stopped": stopped, "afterCommit": afterCommit, "triedAgain": triedAgain, "poison": poison, "redriven": redriven, "inOrder": inOrder,
}

// judge is a test whose failure is no failure.
type judge struct {
	testing.TB
	mu   sync.Mutex
	said strings.Builder
}

func (j *judge) Errorf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.said, format+"\n", args...)
}

func (j *judge) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

func (j *judge) Error(args ...any) { j.Errorf("%s", fmt.Sprint(args...)) }
func (j *judge) Fatal(args ...any) { j.Fatalf("%s", fmt.Sprint(args...)) }

// verdict returns what a check has said.
func verdict(t *testing.T, check func(testing.TB)) string {
	j := &judge{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check(j)
	}()
	<-ended
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.said.String()
}
