package ledger

import (
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
