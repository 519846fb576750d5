package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// to returns a message for a destination.
func to(topic, key, what string) outbox.Message {
	return outbox.Message{Topic: topic, Key: key, Type: what}
}

// divided is a Divider with a destination for each topic.
type divided struct {
	outbox.PublisherFunc
}

func (divided) Destination(topic string) string { return topic }

// The slow destination returns only when the test lets it.
func TestDivider_SlowDestinationBlocksNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	slow, answer := make(chan struct{}, 1000), make(chan struct{})
	publisher := divided{func(ctx context.Context, messages []outbox.Message) error {
		for i := range messages {
			if messages[i].Topic == "slow" {
				slow <- struct{}{}
				<-answer
			}
			if err := b.Publish(ctx, messages[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}}
	var want []string
	for i := range 150 {
		o.add(to("slow", "k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	config := swift()
	config.BatchSize = 20
	o.relay(publisher, config)
	await(t, "a call to the slow destination", slow)
	for i := range 30 {
		o.add(to(fmt.Sprint("fast ", i), "f", fmt.Sprint(i)))
	}
	eventually(t, "the others", func() bool { return len(b.types("f")) == 30 })
	if n := o.count(`select count(*) from idem.outbox where attempts > 0`); n != 0 {
		t.Errorf("an attempt of %d messages is counted", n)
	}
	close(answer)
	o.empty()
	b.wantTypes(t, want, "k")
}

// It blocks no other destination.
func TestDivider_UnavailableDestinationCountsNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(outbox.PublisherFunc) outbox.Publisher{
		"divided":     func(f outbox.PublisherFunc) outbox.Publisher { return divided{f} },
		"not divided": func(f outbox.PublisherFunc) outbox.Publisher { return f },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			b := &broker{}
			var mu sync.Mutex
			tries, back := 0, false
			publisher := kind(func(ctx context.Context, messages []outbox.Message) error {
				mu.Lock()
				defer mu.Unlock()
				failed := map[string]error{}
				for i := range messages {
					if tries++; messages[i].Topic == "away" && !back {
						failed[messages[i].ID] = fmt.Errorf("ask: %w", outbox.RetryLater(errors.New("503"), 0))
						continue
					}
					if err := b.Publish(ctx, messages[i:i+1]); err != nil {
						return err
					}
				}
				if len(failed) > 0 {
					return &outbox.PublishError{Failed: failed}
				}
				return nil
			})
			config := swift()
			config.MaxAttempts = 1
			for i := range 50 {
				o.add(to("away", fmt.Sprint(i%5), fmt.Sprint(i)))
			}
			o.relay(publisher, config)
			for i := range 20 {
				o.add(to("there", "f", fmt.Sprint(i)))
			}
			eventually(t, "the others", func() bool { return len(b.types("f")) == 20 })
			eventually(t, "many attempts", func() bool { mu.Lock(); defer mu.Unlock(); return tries > 100 })
			if n := o.count(`select (select count(*) from idem.dead_letters) + count(*) from idem.outbox where attempts > 0`); n != 0 {
				t.Errorf("%d messages have a counted attempt", n)
			}
			mu.Lock()
			back = true
			mu.Unlock()
			o.empty()
			for key := range 5 {
				var want []string
				for i := key; i < 50; i += 5 {
					want = append(want, fmt.Sprint(i))
				}
				if diff := cmp.Diff(want, b.types(fmt.Sprint(key))); diff != "" {
					t.Errorf("%d (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

// The time of the outage counts, not the number of attempts.
func TestMaxOutage_DeadLettersMessages(t *testing.T) {
	t.Parallel()
	away := func(messages []outbox.Message) error {
		failed := map[string]error{}
		for i := range messages {
			failed[messages[i].ID] = outbox.RetryLater(errors.New("503"), 0)
		}
		return &outbox.PublishError{Failed: failed}
	}
	for name, publisher := range map[string]outbox.Publisher{
		"divided":     divided{func(_ context.Context, m []outbox.Message) error { return away(m) }},
		"not divided": outbox.PublisherFunc(func(_ context.Context, m []outbox.Message) error { return away(m) }),
		"no names":    outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errors.New("no broker") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			config := swift()
			config.MaxAttempts, config.MaxOutage = 1, 50*time.Millisecond
			o.add(to("away", "k", "1"), to("away", "k", "2"), to("away", "", "3"))
			o.relay(publisher, config)
			o.empty()
			if got := o.text(`select string_agg(concat_ws(' ', type, class, attempts), ', ' order by type) from idem.dead_letters`); got != "1 unavailable 0, 2 unavailable 0, 3 unavailable 0" {
				t.Errorf("the dead letters are %s", got)
			}
		})
	}
}
