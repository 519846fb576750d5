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

// Handler has the effect of a message, in tx. msg is what JetStream has delivered, with its headers: it is not to be
// acknowledged. Of a dead letter that is tried again it has the payload and the headers, and no subject or metadata.
type Handler func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error

// ConsumerConfig says how messages are consumed. Its zero value works.
type ConsumerConfig struct {
	// Ordered keeps the order of each key. A message waits in the consumer's memory behind those of its key that are to be
	// tried again, and the stream waits, for AckWait at most, for what another process of the same JetStream consumer had in
	// hand when it died. It costs a request to the broker for each batch. Run one process at a time: give the JetStream
	// consumer a pinned priority group (Group), or divide the subjects among several.
	Ordered bool
	// Group is the priority group of the JetStream consumer, if it has one.
	Group string
	// Batch is how many messages share a transaction at most, 256 by default.
	Batch int
	// ID returns the id of a message, by default its header Nats-Msg-Id. A message without one becomes a dead letter, see
	// Position for producers that give none.
	ID func(jetstream.Msg) string
	// Key returns the key of a message, by default its header Idem-Key.
	Key func(jetstream.Msg) string
	// Options are given to inbox.Batch. With inbox.WithLanes among them, several keys are handled side by side.
	Options []inbox.Option
	// Logger is told of dead letters, and of a broker or a database that is away. The default is slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of one JetStream consumer.
type Consumer struct {
	loop   *pull.Consumer[jetstream.Msg]
	source jetstream.Consumer
	group  string
}

// NewConsumer returns a Consumer that handles what source delivers. name is the consumer's in the inbox: a consumer that has the
// same name does not handle the same message again. The Source of a message is the name of its stream.
//
// source has to want explicit acknowledgements, and to deliver a message as often as it takes: the inbox counts attempts,
// and makes dead letters.
func NewConsumer(pool *pgxpool.Pool, name string, source jetstream.Consumer, handle Handler, config ConsumerConfig) (*Consumer, error) {
	switch c := source.CachedInfo().Config; {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, fmt.Errorf("idemnats: AckPolicy of consumer %q is not explicit: messages would be lost", c.Name)
	case c.MaxDeliver > 0:
		return nil, fmt.Errorf("idemnats: MaxDeliver of consumer %q is %d: messages would be lost after that, set it to -1", c.Name, c.MaxDeliver)
	case config.Group == "" && len(c.PriorityGroups) > 0:
		return nil, fmt.Errorf("idemnats: consumer %q has priority groups: choose one by ConsumerConfig.Group", c.Name)
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

// Run handles messages until ctx ends. Then it releases the messages that it holds, so that
// JetStream delivers them to another process at once. It survives an unavailable broker or database.
// It returns an error only if the connection to NATS was closed for good, or if the inbox refuses
// the name of the stream.
func (c *Consumer) Run(ctx context.Context) error { return c.loop.Run(ctx, c.open) }

// Position returns an id for messages of producers that give none, made of the place of the message in its stream: to be
// ConsumerConfig.ID. It makes deliveries of one message one, and cannot know that a producer has stored it twice.
func Position(msg jetstream.Msg) string {
	meta, err := msg.Metadata()
	if err != nil {
		return ""
	}
	// The time tells the streams apart that have had one name.
	return fmt.Sprintf("%d@%d", meta.Sequence.Stream, meta.Timestamp.UnixNano())
}
