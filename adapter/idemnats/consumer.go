package idemnats

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

// Handler makes the effect of a message on tx. msg is the delivery of JetStream with its headers;
// the handler must not acknowledge it. For a redriven dead letter, msg has the payload and the
// headers of the message, but no subject and no metadata.
type Handler func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error

// ConsumerConfig configures a Consumer. Its zero value works.
type ConsumerConfig struct {
	// Ordered handles the messages of each key in order. A message waits in memory while an earlier
	// message of its key has to be tried again. If another process of the JetStream consumer dies,
	// later messages wait until the broker has redelivered the messages of that process, at most
	// AckWait. Ordered costs a request to the broker for each batch. Only one process at a time
	// should receive from the JetStream consumer: set a pinned priority group (Group), or divide
	// the subjects among several JetStream consumers.
	Ordered bool
	// Group is the priority group of the JetStream consumer, if it has one.
	Group string
	// Batch is the maximum number of messages in one transaction, 256 by default.
	Batch int
	// ID returns the ID of a message, by default its header Nats-Msg-Id. A message without an ID
	// becomes a dead letter. See Position for producers that set no ID.
	ID func(jetstream.Msg) string
	// Key returns the key of a message, by default its header Idem-Key.
	Key func(jetstream.Msg) string
	// Options are passed to inbox.Batch. inbox.WithLanes handles several keys concurrently.
	Options []inbox.Option
	// Logger logs dead letters, and errors of the broker and the database. The default is
	// slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of one JetStream consumer.
type Consumer struct {
	loop   *pull.Consumer[jetstream.Msg]
	source jetstream.Consumer
	group  string
}

// NewConsumer returns a Consumer of the messages of source. name is the consumer in the inbox:
// consumers with the same name do not handle the same message twice. The Source of a message is the
// name of its stream.
//
// NewConsumer fails if the configuration of source limits the number of deliveries or does not
// require explicit acknowledgments. It also fails if source has priority groups and
// ConsumerConfig.Group is empty.
func NewConsumer(pool *pgxpool.Pool, name string, source jetstream.Consumer, handle Handler, config ConsumerConfig) (*Consumer, error) {
	switch c := source.CachedInfo().Config; {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, fmt.Errorf("idemnats: AckPolicy of consumer %q would lose messages; set jetstream.AckExplicitPolicy", c.Name)
	case c.MaxDeliver > 0:
		return nil, fmt.Errorf("idemnats: MaxDeliver of consumer %q is %d, and would lose messages after that; set it to -1", c.Name, c.MaxDeliver)
	case config.Group == "" && len(c.PriorityGroups) > 0:
		return nil, fmt.Errorf("idemnats: consumer %q has priority groups; set ConsumerConfig.Group to one of them", c.Name)
	}
	if config.ID == nil {
		config.ID = func(msg jetstream.Msg) string { return msg.Headers().Get(HeaderID) }
	}
	if config.Key == nil {
		config.Key = func(msg jetstream.Msg) string { return decode(msg.Headers(), HeaderKey) }
	}
	loop, err := pull.New(pool, name, handle, pull.Config[jetstream.Msg]{
		Ordered: config.Ordered, Requeue: true, Batch: config.Batch,
		ID: config.ID, Key: config.Key, Position: Position,
		Redriven: func(m inbox.Message) jetstream.Msg { return redriven{message: m} },
		Options:  config.Options, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Consumer{loop: loop, source: source, group: config.Group}, nil
}

// Run handles messages until ctx ends. Then it releases the messages that are not acknowledged, so
// that JetStream delivers them to another process at once. It survives an unavailable broker or
// database. It returns an error only if the connection to NATS was closed for good, or if the inbox
// refuses the name of the stream.
func (c *Consumer) Run(ctx context.Context) error { return c.loop.Run(ctx, c.open) }

// Position returns an ID made of the position of a message in its stream. It is a ConsumerConfig.ID
// for producers that set no ID. All deliveries of a message have the same Position. If a producer
// stores a message twice, the two copies have different Positions, and both are handled.
func Position(msg jetstream.Msg) string {
	meta, err := msg.Metadata()
	if err != nil {
		return ""
	}
	// The time distinguishes a stream from an earlier stream with the same name.
	return fmt.Sprintf("%d@%d", meta.Sequence.Stream, meta.Timestamp.UnixNano())
}
