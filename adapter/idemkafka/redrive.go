package idemkafka

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
)

// redrive handles the dead letters that are to be tried again.
func (r *run) redrive(ctx context.Context) {
	err := inbox.RunRedrives(ctx, r.pool, r.name, func(tx pgx.Tx, m inbox.Message) error {
		return r.handle(tx, m, redriven(m))
	}, inbox.RedriveConfig{Options: r.config.Options, Logger: r.config.Logger})
	if err != nil {
		r.config.Logger.Error("idemkafka: cannot handle dead letters again", "consumer", r.name, "error", err)
	}
}

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
