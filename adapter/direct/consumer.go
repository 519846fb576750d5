package direct

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// Consumer is a Publisher that handles messages instead of publishing them.
type Consumer struct{ to target }

var (
	_ outbox.OrderKeeper = (*Consumer)(nil)
)

// NewConsumer returns a Consumer that handles messages in the database of pool. name is that of the consumer in the inbox: what it has
// handled once it does not handle again under that name.
func NewConsumer(pool *pgxpool.Pool, name string, handle Handler, config ConsumerConfig) (*Consumer, error) {
	switch {
	case pool == nil:
		return nil, errors.New("direct: pool is nil")
	case handle == nil:
		return nil, errors.New("direct: nil Handler")
	case config.Batch < 0 || config.Batch > 10_000:
		return nil, errors.New("direct: Batch is 1 to 10,000")
	}
	config.Options = append(config.Options[:len(config.Options):len(config.Options)], inbox.WithOrder())
	if err := inbox.CheckOptions(config.Options...); err != nil {
		return nil, err
	}
	if _, err := inbox.Batch(context.Background(), pool, name, nil, handle); err != nil { // it finds out whether the name is one
		return nil, err
	}
	config.Batch = cmp.Or(config.Batch, 256)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Consumer{target{pool: pool, name: name, handle: handle, config: config}}, nil
}

// KeepsOrder implements outbox.OrderKeeper.
func (c *Consumer) KeepsOrder() bool { return true }

// RunBeside handles dead letters that are to be tried again. A Relay calls it.
func (c *Consumer) RunBeside(ctx context.Context) {
	config := &c.to.config
	err := inbox.RunRedrives(ctx, c.to.pool, c.to.name, c.to.handle, inbox.RedriveConfig{Options: config.Options, Logger: config.Logger})
	if err != nil {
		config.Logger.Error("direct: cannot handle dead letters again", "consumer", c.to.name, "error", err)
	}
}

// Publish handles messages, as many as there is time for. A Relay calls it.
func (c *Consumer) Publish(ctx context.Context, messages []outbox.Message) error {
	call := newCall(ctx, &c.to, messages)
	for call.next(ctx) {
		call.handle(ctx)
	}
	return call.result(ctx)
}
