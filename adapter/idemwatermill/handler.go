package idemwatermill

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The names of the metadata with the key and the type of a message.
const (
	MetadataKey  = "idem-key"
	MetadataType = "idem-type"
)

// HandlerConfig configures a Handler. Its zero value works.
type HandlerConfig struct {
	// Message returns the message for the inbox. By default, Source is the topic of the router's
	// subscription, ID is the UUID, Key and Type are the metadata [MetadataKey] and [MetadataType],
	// and Headers are the other metadata. If a message may kill its process, set Deliveries of
	// every message to 2, as for a redelivery. The inbox then counts each attempt before the
	// attempt begins.
	Message func(msg *message.Message) inbox.Message
	// Options are passed to inbox.Handle.
	Options []inbox.Option
	// Logger logs dead letters. The default is slog.Default().
	Logger *slog.Logger
}

// invalidBackoff is the wait before the redelivery of a message whose Source is invalid.
const invalidBackoff = time.Second

// Handler returns a handler for a Watermill router:
//
//	router.AddConsumerHandler(name, topic, subscriber, idemwatermill.Handler(…))
//
// name is the consumer in the inbox: consumers with the same name do not handle the same message
// twice. handle makes the effect of a message on tx. It gets a copy of the message, which it cannot
// acknowledge.
//
// The router acknowledges a message when its effect is committed, by this delivery or an earlier
// one, or when it is a dead letter. Otherwise the handler waits until the next attempt is due and
// returns the error, so that the router has the message redelivered.
func Handler(pool *pgxpool.Pool, name string, handle func(tx pgx.Tx, msg *message.Message) error, config HandlerConfig) message.NoPublishHandlerFunc {
	if config.Message == nil {
		config.Message = received
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return func(msg *message.Message) error {
		ctx := msg.Context()
		passed := msg.CopyWithContext()
		out, err := inbox.Handle(ctx, pool, name, config.Message(msg), func(tx pgx.Tx) error { return handle(tx, passed) }, config.Options...)
		switch out.State {
		case inbox.Done, inbox.Duplicate:
			return nil
		case inbox.Dead:
			if !errors.Is(out.Err, inbox.ErrDead) {
				config.Logger.ErrorContext(ctx, "idemwatermill: a message is a dead letter", "consumer", name, "error", out.Err)
			}
			return nil
		case inbox.Retry:
			sleep(ctx, time.Until(out.RetryAt))
			return cmp.Or(err, out.Err)
		}
		sleep(ctx, invalidBackoff)
		return err
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// received converts a message of Watermill to a message for the inbox.
func received(msg *message.Message) inbox.Message {
	headers := maps.Clone(msg.Metadata)
	delete(headers, MetadataKey)
	delete(headers, MetadataType)
	return inbox.Message{
		Source:  message.SubscribeTopicFromCtx(msg.Context()),
		ID:      msg.UUID,
		Key:     msg.Metadata.Get(MetadataKey),
		Type:    msg.Metadata.Get(MetadataType),
		Headers: headers,
		Payload: msg.Payload,
	}
}

// RunRedrives handles redriven dead letters, which the broker does not deliver, until ctx ends.
// Pass the arguments of Handler, and run it in a goroutine while the router runs. handle gets a
// message with the UUID, the payload and the metadata of the dead letter.
func RunRedrives(ctx context.Context, pool *pgxpool.Pool, name string, handle func(tx pgx.Tx, msg *message.Message) error, config HandlerConfig) error {
	return inbox.RunRedrives(ctx, pool, name, func(tx pgx.Tx, m inbox.Message) error {
		return handle(tx, watermillMessage(inbox.Context(tx), outbox.Message{ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload}))
	}, inbox.RedriveConfig{Options: config.Options, Logger: config.Logger})
}
