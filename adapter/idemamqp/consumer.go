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

// Handler makes the effect of a message on tx. d is the delivery of RabbitMQ with its headers; the
// handler cannot acknowledge it. For a redriven dead letter, d has the ID, type, headers and body
// of the message.
type Handler func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error

// ConsumerConfig configures a Consumer. Its zero value works.
type ConsumerConfig struct {
	// Ordered handles the messages of each key in order: a message waits while an earlier message
	// of its key has to be tried again. Only one consumer at a time may read the queue. Declare the
	// queue with x-single-active-consumer; then any number of processes may run.
	Ordered bool
	// Batch is the maximum number of messages in one transaction, 256 by default.
	Batch int
	// Prefetch is the maximum number of messages that are delivered and not acknowledged, 1,000 by
	// default and at most 65,535. It includes messages that wait for another attempt. While that
	// many messages wait, no other message is handled.
	Prefetch int
	// ID returns the ID of a message, by default its message-id. A message without an ID becomes a
	// dead letter.
	ID func(amqp.Delivery) string
	// Key returns the key of a message, by default its header [HeaderKey].
	Key func(amqp.Delivery) string
	// Options are passed to inbox.Batch. inbox.WithLanes handles several keys concurrently.
	Options []inbox.Option
	// AMQP configures the connection: TLS, heartbeat, name. Its Recovery is ignored.
	AMQP amqp.Config
	// Logger logs dead letters, and errors of the broker and the database. The default is
	// slog.Default().
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

// NewConsumer returns a Consumer of an existing queue. name is the consumer in the inbox: consumers
// with the same name do not handle the same message twice. The Source of a message is the name of
// the queue.
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
