package idemamqp

import (
	"context"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// redrive handles the dead letters that are to be tried again.
func (c *Consumer) redrive(ctx context.Context) {
	err := inbox.RunRedrives(ctx, c.pool, c.name, func(tx pgx.Tx, m inbox.Message) error {
		return c.handle(tx, m, redriven(m))
	}, inbox.RedriveConfig{Options: c.config.Options, Logger: c.config.Logger})
	if err != nil {
		c.config.Logger.ErrorContext(ctx, "idemamqp: cannot handle dead letters again", "consumer", c.name, "error", err)
	}
}

// redriven is the delivery of a dead letter that is tried again, for a Handler. It comes from no queue.
func redriven(m inbox.Message) amqp.Delivery {
	p := publishing(outbox.Message{ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload})
	return amqp.Delivery{MessageId: p.MessageId, Type: p.Type, Headers: p.Headers, Body: p.Body, DeliveryMode: p.DeliveryMode, Redelivered: true}
}
