package outboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

func pool(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }

func TestRun_AcceptsACorrectPublisher(t *testing.T) {
	t.Parallel()
	Run(t, Suite{Pool: pool, New: func(testing.TB) Target {
		m := &memory{}
		return m.target(m)
	}})
}

// keeper is a correct OrderKeeper.
type keeper struct{ *memory }

func (keeper) KeepsOrder() bool { return true }

func (k keeper) Publish(ctx context.Context, messages []outbox.Message) error {
	failed, stuck := map[string]error{}, map[[2]string]bool{}
	for _, msg := range messages {
		key := [2]string{msg.Topic, msg.Key}
		if msg.Key != "" && stuck[key] {
			failed[msg.ID] = errRefused
			continue
		}
		err := publish(ctx, k.memory, []outbox.Message{msg})
		if err != nil && !isNamed(err) && (k.isDown() || ctx.Err() != nil) {
			return err
		}
		if err != nil {
			failed[msg.ID], stuck[key] = errRefused, true
		}
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}

func TestRun_AcceptsACorrectOrderKeeper(t *testing.T) {
	t.Parallel()
	for _, check := range []func(testing.TB, Suite){inOrder, holdsAfterFailure, namesFailing, deadLettersFailing} {
		check(t, Suite{Pool: pool, New: func(testing.TB) Target {
			m := &memory{}
			return m.target(keeper{m})
		}})
	}
}

// changed returns a Publisher that changes messages.
func changed(change func(*outbox.Message)) func(*memory) outbox.Publisher {
	return func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			messages = slices.Clone(messages)
			for i := range messages {
				change(&messages[i])
			}
			return m.Publish(ctx, messages)
		})
	}
}

// answered returns a Publisher that changes the error of a call.
func answered(answer func(m *memory, messages []outbox.Message, err error) error) func(*memory) outbox.Publisher {
	return func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			return answer(m, messages, m.Publish(ctx, messages))
		})
	}
}

// all returns a PublishError that names every message.
func all(messages []outbox.Message, err error) error {
	failed := map[string]error{}
	for _, msg := range messages {
		failed[msg.ID] = err
	}
	return &outbox.PublishError{Failed: failed}
}

type goesOn struct{ *memory }

func (goesOn) KeepsOrder() bool { return true }

// broken has Publishers that each break a rule, and a part of the error that the rule must report.
var broken = []struct {
	name, rule, says string
	publisher        func(*memory) outbox.Publisher
}{
	{"publishes twice", "ArrivesOnceAndUnchanged", "has arrived 2 times", func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			return errors.Join(m.Publish(ctx, messages), m.Publish(ctx, messages))
		})
	}},
	{"trims payloads", "ArrivesOnceAndUnchanged", "is not what was published", changed(func(m *outbox.Message) { m.Payload = []byte(strings.TrimSpace(string(m.Payload))) })},
	{"loses the key", "ArrivesOnceAndUnchanged", "is not what was published", changed(func(m *outbox.Message) { m.Key = "" })},
	{"keeps the slice", "ArrivesOnceAndUnchanged", "is not what was published", func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.stored = append(m.stored, messages...)
			return nil
		})
	}},
	{"publishes only a hundred messages", "FullBatchArrives", "have not arrived", func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			return m.Publish(ctx, messages[:min(100, len(messages))])
		})
	}},
	{"has another id each time", "RepeatedMessageIsUnchanged", "have not arrived", changed(func(m *outbox.Message) { m.ID = outbox.NewID() })},
	{"mixes calls", "ConcurrentCalls", "have not arrived", func(m *memory) outbox.Publisher {
		var mu sync.Mutex
		var current []outbox.Message
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			mu.Lock()
			current = messages
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			return m.Publish(ctx, current)
		})
	}},
	{"returns before it has published", "OrderOfAKey", "has arrived before", func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
			for _, msg := range messages {
				if msg.Type == "Said" && msg.Topic == "orders" {
					time.AfterFunc(rand.N(200*time.Millisecond), func() { m.store(msg) })
				}
			}
			return nil
		})
	}},
	{"claims to keep the order", "OrderKeeperHoldsMessagesAfterAFailedOne", "that the error names", func(m *memory) outbox.Publisher { return goesOn{m} }},
	{"ignores refusals", "NamesOnlyTheFailingMessage", "the error is nil", answered(func(_ *memory, _ []outbox.Message, err error) error {
		if isNamed(err) {
			return nil
		}
		return err
	})},
	{"names other messages as well", "NamesOnlyTheFailingMessage", "that the error names", answered(func(_ *memory, messages []outbox.Message, err error) error {
		if isNamed(err) {
			return all(messages, errRefused)
		}
		return err
	})},
	{"treats a refusal as an outage", "DeadLettersOnlyTheFailingMessage", "still in the outbox", answered(func(_ *memory, messages []outbox.Message, err error) error {
		if named, ok := errors.AsType[*outbox.PublishError](err); ok {
			for id, reason := range named.Failed {
				named.Failed[id] = outbox.RetryLater(reason, time.Second)
			}
		}
		return err
	})},
	{"treats an outage as a refusal", "OutageCountsNoAttempt", "against 3 messages", answered(func(m *memory, messages []outbox.Message, err error) error {
		if m.isDown() {
			return all(messages, errRefused)
		}
		return err
	})},
	{"treats an outage as a refusal", "RelaySurvivesAnOutage", "has dead-lettered", answered(func(m *memory, messages []outbox.Message, err error) error {
		if m.isDown() {
			return all(messages, errRefused)
		}
		return err
	})},
	{"ignores an outage", "OutageCountsNoAttempt", "the error is nil", answered(func(*memory, []outbox.Message, error) error { return nil })},
	{"ignores its context", "ReturnsAtTheEndOfTheContext", "does not return", func(m *memory) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			return m.Publish(context.WithoutCancel(ctx), messages)
		})
	}},
	{"counts the end of its context", "ReturnsAtTheEndOfTheContext", "against 3 messages", answered(func(_ *memory, messages []outbox.Message, err error) error {
		if errors.Is(err, context.Canceled) {
			return all(messages, errRefused)
		}
		return err
	})},
	{"trims headers", "UnusualContents", "is not what was published", changed(func(m *outbox.Message) {
		if v, ok := m.Headers["Tenant"]; ok {
			m.Headers["Tenant"] = strings.TrimSpace(v)
		}
	})},
}

// timeouts are the errors of rules that wait for Suite.Patience.
var timeouts = []string{"have not arrived", "still in the outbox", "no call fails", "the error is still", "does not return"}

func TestRun_FindsEachBrokenPublisher(t *testing.T) {
	t.Parallel()
	found, checks := map[string]bool{}, map[string]func(testing.TB, Suite){}
	for _, r := range rules {
		checks[r.name] = r.check
	}
	for _, b := range broken {
		check := checks[b.rule]
		found[b.rule] = true
		t.Run(b.rule+": "+b.name, func(t *testing.T) {
			t.Parallel()
			said := untilSaid(b.says, func(timeout time.Duration) string {
				return waiting.Failures(t, func(t testing.TB) {
					check(t, Suite{Pool: pool, Patience: timeout, New: func(testing.TB) Target {
						m := &memory{}
						return m.target(b.publisher(m))
					}})
				})
			})
			if !strings.Contains(said, b.says) {
				t.Errorf("the rule reports %q, want a text with %q", said, b.says)
			}
		})
	}
	if len(found) != len(rules) {
		t.Errorf("%d of %d rules have a Publisher that breaks them", len(found), len(rules))
	}
}

// untilSaid returns the errors of a rule. If the expected error is a timeout, Patience is short at
// first. On a slow machine another wait may time out; then Patience is increased.
func untilSaid(says string, rule func(timeout time.Duration) string) (said string) {
	if !slices.Contains(timeouts, says) {
		return rule(0)
	}
	for timeout := time.Second; timeout < 2*time.Minute && !strings.Contains(said, says); timeout *= 10 {
		said = rule(timeout)
	}
	return said
}
