package idemamqp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
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
	pool   *pgxpool.Pool
	name   string
	url    string
	queue  string
	handle Handler
	config ConsumerConfig
}

const (
	minPause = 50 * time.Millisecond // after an error
	maxPause = 5 * time.Second
)

// NewConsumer returns a Consumer of a queue, which has to exist. name is the consumer's in the inbox: a consumer that has the same name
// does not handle the same message again. The Source of a message is the name of the queue.
func NewConsumer(pool *pgxpool.Pool, name, url, queue string, handle Handler, config ConsumerConfig) (*Consumer, error) {
	if handle == nil {
		return nil, errors.New("idemamqp: nil Handler")
	}
	if config.Ordered {
		config.Options = append(config.Options[:len(config.Options):len(config.Options)], inbox.WithOrder())
	}
	if err := inbox.CheckOptions(config.Options...); err != nil {
		return nil, err
	}
	config.Batch = cmp.Or(config.Batch, 256)
	config.Prefetch = cmp.Or(config.Prefetch, 1000)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Batch < 1 || config.Prefetch < 1 || config.Prefetch > 65535 {
		return nil, errors.New("idemamqp: Batch and Prefetch have to be positive, and Prefetch 65,535 at most")
	}
	if config.ID == nil {
		config.ID = func(d amqp.Delivery) string { return d.MessageId }
	}
	if config.Key == nil {
		config.Key = func(d amqp.Delivery) string { key, _ := d.Headers[HeaderKey].(string); return key }
	}
	return &Consumer{pool: pool, name: name, url: url, queue: queue, handle: handle, config: config}, nil
}

// Run handles messages until ctx ends, one batch after the other. It survives a broker or a database that is away, and returns an
// error only if the inbox refuses the names of the consumer and the queue.
func (c *Consumer) Run(ctx context.Context) error {
	redriving, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.redrive(redriving)
	}()
	defer func() {
		stop()
		<-ended
	}()
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		err := c.consume(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(misuse)):
			return err
		case time.Since(began) > maxPause:
			pause = minPause
		}
		c.config.Logger.WarnContext(ctx, "idemamqp: cannot consume", "consumer", c.name, "queue", c.queue, "error", err)
		sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, maxPause)
	}
	return nil
}

// misuse is an error that does not go away.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// consume opens a connection and handles what comes by it, until it breaks.
func (c *Consumer) consume(ctx context.Context) error {
	link := newLink(c.url, c.config.AMQP)
	channel, err := link.channel(ctx)
	if err != nil {
		return err
	}
	defer link.close() // the broker delivers again what was not acknowledged
	if err := channel.Qos(c.config.Prefetch, 0, false); err != nil {
		return err
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := channel.Consume(c.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	s := &session{Consumer: c, channel: channel, arrived: buffered(deliveries, c.config.Prefetch), rest: minPause}
	err = s.run(ctx)
	if channel.IsClosed() {
		if reason := <-closed; reason != nil {
			return reason
		}
	}
	return err
}

// buffered has deliveries wait side by side, so that a batch can be taken of them without waiting for each. There are no more than
// size, because the broker waits for acknowledgements.
func buffered(deliveries <-chan amqp.Delivery, size int) <-chan amqp.Delivery {
	arrived := make(chan amqp.Delivery, size)
	go func() {
		defer close(arrived)
		for d := range deliveries {
			arrived <- d
		}
	}()
	return arrived
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
