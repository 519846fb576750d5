package db

import (
	"strings"
	"time"
)

// The states of a message in idem.inbox.
const (
	MessageHandled = "handled"
	MessageFailing = "failing"
	MessageDead    = "dead"
)

// MessageID identifies a message. ID is unique within Source.
type MessageID struct{ Source, ID string }

// Messages are the ids and hashes of several messages, encoded for a statement. NewMessages returns
// them.
type Messages struct {
	consumer, sources, ids string
	hashes                 []byte
}

// NewMessages encodes n messages for statements. It calls the function get for each i from 0 to
// n-1, which returns the id and the hash of the message.
func NewMessages(consumer string, n int, get func(i int) (MessageID, [32]byte)) *Messages {
	m := &Messages{consumer: consumer, hashes: make([]byte, 0, n*32)}
	var sources, ids strings.Builder
	begin := byte('{')
	for i := range n {
		id, hash := get(i)
		appendElement(&sources, begin, id.Source)
		appendElement(&ids, begin, id.ID)
		m.hashes = append(m.hashes, hash[:]...)
		begin = ','
	}
	m.sources, m.ids = endArray(&sources), endArray(&ids)
	return m
}

// FailedMessage is a message whose handler has failed.
type FailedMessage struct {
	Consumer string
	MessageID
	Hash      [32]byte
	Key       string
	Retention time.Duration
}
