package idemwatermill

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// RunRedrives handles dead letters that are to be tried again, which the broker does not deliver any more, until ctx ends. It takes the
// arguments of Handler, and runs beside the router. A message that handle gets has the UUID, the payload and the metadata of the dead letter.
func RunRedrives(ctx context.Context, pool *pgxpool.Pool, name string, handle func(tx pgx.Tx, msg *message.Message) error, config HandlerConfig) error {
	return inbox.RunRedrives(ctx, pool, name, func(tx pgx.Tx, m inbox.Message) error {
		msg := redriven(m)
		msg.SetContext(inbox.Context(tx))
		return handle(tx, msg)
	}, inbox.RedriveConfig{Options: config.Options, Logger: config.Logger})
}

// redriven is the opposite of received.
func redriven(m inbox.Message) *message.Message {
	msg := message.NewMessage(m.ID, m.Payload)
	for name, value := range m.Headers {
		msg.Metadata.Set(name, value)
	}
	for name, value := range map[string]string{MetadataKey: m.Key, MetadataType: m.Type} {
		if value != "" {
			msg.Metadata.Set(name, value)
		}
	}
	return msg
}
