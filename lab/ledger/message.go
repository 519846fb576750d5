package ledger

import (
	"context"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// Outgoing are messages as a Publisher is given them, so that they come in as these.
func Outgoing(topic string, incoming []inbox.Message) []outbox.Message {
	all := make([]outbox.Message, len(incoming))
	for i, m := range incoming {
		all[i] = outbox.Message{ID: m.ID, Topic: topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
	}
	return all
}

// Publish gives messages to a Publisher as a relay does: one of each key at a time.
func Publish(ctx context.Context, p outbox.Publisher, messages []outbox.Message) error {
	for len(messages) > 0 {
		var group, rest []outbox.Message
		met := map[string]bool{}
		for _, m := range messages {
			if m.Key != "" && met[m.Key] {
				rest = append(rest, m)
				continue
			}
			met[m.Key] = true
			group = append(group, m)
		}
		if err := p.Publish(ctx, group); err != nil {
			return err
		}
		messages = rest
	}
	return nil
}
