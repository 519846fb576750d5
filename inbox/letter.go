package inbox

import (
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
)

// What of a message that has no limits of ours is kept with a dead letter. They are those of an outbox.
const (
	maxType    = 255
	maxHeaders = 64 << 10
)

// typeOf is the type of a message as a dead letter has it. It comes from strangers, as headers do, and is not to keep a message
// from being one.
func typeOf(m *Message) string { return deadletter.Printable(m.Type, maxType) }

// contentsOf is what a message says, as a dead letter has it.
func contentsOf(m *Message) store.Contents {
	kept, size := make(map[string]string, len(m.Headers)), 0
	for name, value := range m.Headers {
		kept[deadletter.Printable(name, maxHeaders)] = deadletter.Printable(value, maxHeaders)
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return store.Contents{Payload: m.Payload}
	}
	headers, _ := store.WriteHeaders(kept) // texts are always JSON
	return store.Contents{Payload: m.Payload, Headers: headers}
}
