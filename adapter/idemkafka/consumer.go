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

// Handler has the effect of a message, in tx. record is what Kafka has delivered, with its headers. Of a dead letter that is tried again
// it has topic, key, headers and value, and -1 as partition and offset.
type Handler func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error

// ConsumerConfig says how messages are consumed. Its zero value works.
type ConsumerConfig struct {
	// Batch is how many messages share a transaction at most, 256 by default.
	Batch int
	// Window is how far a partition is read beyond its first message that is to be tried again, 10,000 messages by default.
	// They are handled, unless they have the key of such a message: those are kept in memory. A partition with a larger
	// one waits, and the others go on.
	Window int
	// ID returns the id of a message, by default its header "id". A message without one becomes a dead letter, see Position
	// for producers that give none.
	ID func(*kgo.Record) string
	// Options are given to inbox.Batch. With inbox.WithLanes among them, several keys are handled side by side.
	Options []inbox.Option
	// Logger is told of dead letters, and of brokers or a database that are away. The default is slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of topics, as a member of a consumer group.
type Consumer struct {
	loop   *pull.Consumer[*kgo.Record]
	window int64
	opts   []kgo.Opt
}

// NewConsumer returns a Consumer. name is that of the consumer group, and the consumer's in the inbox: a group that reads
// its topics again under the same name handles nothing twice. The Source of a message is its topic.
//
// opts make the client: kgo.SeedBrokers and kgo.ConsumeTopics at least. They are not to set a group, what happens when
// partitions are revoked, or anything about commits.
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

// Run handles messages until ctx ends. Then it leaves the group. It survives unavailable brokers and
// an unavailable database. It returns an error only if there can be no client, or if the inbox
// refuses the name of a topic.
func (c *Consumer) Run(ctx context.Context) error { return c.loop.Run(ctx, c.open) }

// Position returns an id for messages of producers that give none, made of the place of the message in its topic: to be
// ConsumerConfig.ID. It makes deliveries of one message one, also when offsets are reset. It cannot know that a producer
// without idempotence has sent it twice, or that a topic was copied to another cluster.
func Position(record *kgo.Record) string {
	// The time tells topics apart that have had one name.
	return fmt.Sprintf("%d/%d@%d", record.Partition, record.Offset, record.Timestamp.UnixMilli())
}
