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
)

// Names in the metadata of a message.
const (
	MetadataKey  = "idem-key"
	MetadataType = "idem-type"
)

// HandlerConfig says how messages are handled. Its zero value works.
type HandlerConfig struct {
	// Message returns what the inbox has of a message. By default, its Source is the topic that the router has subscribed to, its
	// ID the UUID, its Key and Type are the metadata [MetadataKey] and [MetadataType], and its Headers the rest of them. Watermill does not say how often it has delivered a message: if one may
	// kill its process, set Deliveries to 2, and each attempt is counted before it begins.
	Message func(msg *message.Message) inbox.Message
	// Options are given to inbox.Handle.
	Options []inbox.Option
	// Logger is told of dead letters. The default is slog.Default().
	Logger *slog.Logger
}

// pause is that before a message is delivered again that the inbox does not know what to call.
const pause = time.Second

// Handler returns a handler for a router of Watermill's: router.AddConsumerHandler(name, topic, subscriber, idemwatermill.Handler(…)).
// name is the consumer's in the inbox: a consumer that has the same name does not handle the same message again.
//
// handle has the effect of a message, in tx. The message that it gets is a copy, which it cannot acknowledge.
//
// The router acknowledges a message when its effect is committed, now or earlier, and when it is a dead letter. Otherwise the
// handler waits until the next attempt is due and returns the error, and the router has the message delivered again.
func Handler(pool *pgxpool.Pool, name string, handle func(tx pgx.Tx, msg *message.Message) error, config HandlerConfig) message.NoPublishHandlerFunc {
	if config.Message == nil {
		config.Message = received
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return func(msg *message.Message) error {
		ctx := msg.Context()
		theirs := msg.CopyWithContext()
		out, err := inbox.Handle(ctx, pool, name, config.Message(msg), func(tx pgx.Tx) error { return handle(tx, theirs) }, config.Options...)
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
		sleep(ctx, pause)
		return err
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// received is a message as the inbox has it.
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
