package idemkafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The headers that a Publisher adds for the ID and the type of a message. Debezium's outbox event
// router uses the same header for the ID.
const (
	HeaderID   = "id"
	HeaderType = "type"
)

var errRefused = errors.New("idemkafka: the message cannot be published")

func encode(m outbox.Message) (*kgo.Record, error) {
	for name := range m.Headers {
		if isReserved(name) {
			return nil, fmt.Errorf("%w: its header %q is reserved; rename the header", errRefused, name)
		}
	}
	return recordOf(m), nil
}

func recordOf(m outbox.Message) *kgo.Record {
	record := &kgo.Record{Topic: m.Topic, Value: m.Payload, Headers: []kgo.RecordHeader{
		{Key: HeaderID, Value: []byte(m.ID)},
		{Key: HeaderType, Value: []byte(m.Type)},
	}}
	if m.Key != "" {
		record.Key = []byte(m.Key)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(m.Headers[name])})
	}
	return record
}

// redriven returns a record for a redriven dead letter, which comes from the database and not from
// a partition.
func redriven(m inbox.Message) *kgo.Record {
	record := recordOf(outbox.Message{ID: m.ID, Topic: m.Source, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload})
	record.Partition, record.Offset = -1, -1
	return record
}

// header returns the value of the first header with the name, or "" if record has no such header.
func header(record *kgo.Record, name string) string {
	i := slices.IndexFunc(record.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(record.Headers[i].Value)
}

func isReserved(name string) bool { return name == HeaderID || name == HeaderType }

// ownHeaders returns the headers that are not reserved, each with its first value.
func ownHeaders(record *kgo.Record) map[string]string {
	own := make(map[string]string, len(record.Headers))
	for _, h := range slices.Backward(record.Headers) {
		if !isReserved(h.Key) {
			own[h.Key] = string(h.Value)
		}
	}
	return own
}
