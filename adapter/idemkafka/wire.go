package idemkafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/outbox"
)

// The headers of a message besides its own. The ID is where Debezium's outbox event router puts it as well.
const (
	HeaderID   = "id"
	HeaderType = "type"
)

var errRefused = errors.New("idemkafka: the message cannot be published as it is")

func encode(m outbox.Message) (*kgo.Record, error) {
	record := &kgo.Record{Topic: m.Topic, Value: m.Payload, Headers: []kgo.RecordHeader{
		{Key: HeaderID, Value: []byte(m.ID)},
		{Key: HeaderType, Value: []byte(m.Type)},
	}}
	if m.Key != "" {
		record.Key = []byte(m.Key)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if isReserved(name) {
			return nil, fmt.Errorf("%w: %q is the name of a header that is not its own", errRefused, name)
		}
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(m.Headers[name])})
	}
	return record, nil
}

// header returns the value of a record's first header of that name.
func header(record *kgo.Record, name string) string {
	i := slices.IndexFunc(record.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(record.Headers[i].Value)
}

func isReserved(name string) bool { return name == HeaderID || name == HeaderType }

// ownHeaders returns the message's own headers, nil if it has none: of several of one name the first.
func ownHeaders(record *kgo.Record) map[string]string {
	var own map[string]string
	for _, h := range record.Headers {
		if _, twice := own[h.Key]; twice || isReserved(h.Key) {
			continue
		}
		if own == nil {
			own = make(map[string]string, len(record.Headers))
		}
		own[h.Key] = string(h.Value)
	}
	return own
}
