package idemkafka

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
)

// redriven is the record of a dead letter that is tried again, for a Handler. It comes from no partition.
func redriven(m inbox.Message) *kgo.Record {
	record := &kgo.Record{Topic: m.Source, Partition: -1, Offset: -1, Value: m.Payload, Headers: []kgo.RecordHeader{
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
