package idemamqp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

// Handler has the effect of a message, in tx. d is what RabbitMQ has delivered, with its headers: it cannot be acknowledged.
// Of a dead letter that is tried again it has id, type, headers and body alone.
type Handler func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error

// ConsumerConfig says how messages are consumed. Its zero value works.
type ConsumerConfig struct {
	// Ordered keeps the order of each key: a message waits behind those of its key that are to be tried again. One consumer at a
	// time has to read the queue for that: declare it with x-single-active-consumer, and run as many processes as you like.
	Ordered bool
	// Batch is how many messages share a transaction at most, 256 by default.
	Batch int
	// Prefetch is how many messages the broker hands over before they are acknowledged, 1,000 by default and 65,535 at most. Those
	// that wait for another attempt are among them: if all of them do, nothing else is handled until one is due.
	Prefetch int
	// ID returns the id of a message, by default its message-id. A message without one becomes a dead letter.
	ID func(amqp.Delivery) string
	// Key returns the key of a message, by default its header [HeaderKey].
	Key func(amqp.Delivery) string
	// Options are given to inbox.Batch. With inbox.WithLanes among them, several keys are handled side by side.
	Options []inbox.Option
	// AMQP is how to connect: TLS, heartbeat, the connection's name. Its Recovery is not used.
	AMQP amqp.Config
	// Logger is told of dead letters, and of a broker or a database that is away. The default is slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of one queue.
type Consumer struct {
	loop     *pull.Consumer[amqp.Delivery]
	url      string
	queue    string
	prefetch int
	amqp     amqp.Config
}

// NewConsumer returns a Consumer of a queue, which has to exist. name is the consumer's in the inbox: a consumer that has the same name
// does not handle the same message again. The Source of a message is the name of the queue.
func NewConsumer(pool *pgxpool.Pool, name, url, queue string, handle Handler, config ConsumerConfig) (*Consumer, error) {
	config.Prefetch = cmp.Or(config.Prefetch, 1000)
	if config.Prefetch < 1 || config.Prefetch > 65535 {
		return nil, fmt.Errorf("idemamqp: Prefetch is %d; set it to 1 to 65,535", config.Prefetch)
	}
	if config.ID == nil {
		config.ID = func(d amqp.Delivery) string { return d.MessageId }
	}
	if config.Key == nil {
		config.Key = func(d amqp.Delivery) string { key, _ := d.Headers[HeaderKey].(string); return key }
	}
	loop, err := pull.New(pool, name, handle, pull.Config[amqp.Delivery]{
		Ordered: config.Ordered, Batch: config.Batch, ID: config.ID, Key: config.Key, Redriven: redriven,
		Options: config.Options, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Consumer{loop: loop, url: url, queue: queue, prefetch: config.Prefetch, amqp: config.AMQP}, nil
}

// Run handles messages until ctx ends, one batch after the other. It survives an unavailable broker
// or database, and returns an error only if the inbox refuses the name of the queue.
func (c *Consumer) Run(ctx context.Context) error { return c.loop.Run(ctx, c.open) }
