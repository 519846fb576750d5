package idemkafka

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

// Handler makes the effect of a message on tx. record is the record of Kafka with its headers. For
// a redriven dead letter, record has the topic, key, headers and value of the message, and -1 as
// partition and offset.
type Handler func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error

// ConsumerConfig configures a Consumer. Its zero value works.
type ConsumerConfig struct {
	// Batch is the maximum number of messages in one transaction, 256 by default.
	Batch int
	// Window is how many messages of a partition are read beyond the first message that has to be
	// tried again, 10,000 by default. Messages in the window are handled, unless an earlier message
	// of their key has to be tried again: then they wait in memory. When the whole window is read,
	// the partition waits, and other partitions continue.
	Window int
	// ID returns the ID of a message, by default its header "id". A message without an ID becomes a
	// dead letter. See Position for producers that set no ID.
	ID func(*kgo.Record) string
	// Options are passed to inbox.Batch. inbox.WithLanes handles several keys concurrently.
	Options []inbox.Option
	// Logger logs dead letters, and errors of the brokers and the database. The default is
	// slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of topics, as a member of a consumer group.
type Consumer struct {
	loop   *pull.Consumer[*kgo.Record]
	window int64
	opts   []kgo.Opt
}

// NewConsumer returns a Consumer. name is the consumer group and the consumer in the inbox: a group
// that reads its topics again under the same name handles no message twice. The Source of a message
// is its topic.
//
// opts configure the Kafka client, and must include kgo.SeedBrokers and kgo.ConsumeTopics. They
// must not set a consumer group, callbacks for revoked or lost partitions, or options for
// committing offsets.
func NewConsumer(pool *pgxpool.Pool, name string, handle Handler, config ConsumerConfig, opts ...kgo.Opt) (*Consumer, error) {
	if config.ID == nil {
		config.ID = func(record *kgo.Record) string { return header(record, HeaderID) }
	}
	loop, err := pull.New(pool, name, handle, pull.Config[*kgo.Record]{
		Ordered: true, Batch: config.Batch,
		ID: config.ID, Key: func(record *kgo.Record) string { return string(record.Key) },
		Redriven: redriven, Position: Position, Options: config.Options, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	opts = append(opts[:len(opts):len(opts)], kgo.ConsumerGroup(name), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	c := &Consumer{loop: loop, window: int64(max(cmp.Or(config.Window, 10_000), loop.Batch)), opts: opts}
	return c, kgo.ValidateOpts(opts...)
}

// Run handles messages until ctx ends, and then leaves the group. It survives unavailable brokers
// and an unavailable database. It returns an error only if the client cannot be created, or if the
// inbox refuses the name of a topic.
func (c *Consumer) Run(ctx context.Context) error { return c.loop.Run(ctx, c.open) }

// Position returns an ID made of the position of a message in its topic. It is a ConsumerConfig.ID
// for producers that set no ID. All deliveries of a message have the same Position, even after the
// offsets were reset. If a non-idempotent producer sends a message twice, the two copies have
// different Positions, and both are handled. The same is true of a copy of the message in another
// cluster.
func Position(record *kgo.Record) string {
	// The time distinguishes a topic from an earlier topic with the same name.
	return fmt.Sprintf("%d/%d@%d", record.Partition, record.Offset, record.Timestamp.UnixMilli())
}
