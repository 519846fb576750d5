package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
