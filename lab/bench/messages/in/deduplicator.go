package in

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
)

// Deduplicator is Watermill's router with its Deduplicator and the default repository: a map in the
// process that keeps keys for a minute and is checked before the handler runs. The key is the UUID
// of the message. The default key is an Adler-32 of the payload, which may be the same for
// different messages. The documentation makes no promise for several processes.
func Deduplicator() Contestant {
	return Contestant{
		Name: "Watermill Deduplicator, in memory", Repeats: true,
		Consume: func(ctx context.Context, place Place) error {
			keys, err := middleware.NewMapExpiringKeyRepository(time.Minute)
			if err != nil {
				return err
			}
			return route(ctx, place, keys)
		},
	}
}

// byUUID returns the key by which the Deduplicator recognizes duplicates.
func byUUID(m *message.Message) (string, error) { return m.UUID, nil }

// route runs a router whose handler makes the effect in its own transaction.
func route(ctx context.Context, place Place, keys middleware.ExpiringKeyRepository) error {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	deduplicator := middleware.Deduplicator{KeyFactory: byUUID, Repository: keys, Timeout: time.Minute}
	subscriber := &subscriber{place: place}
	router.AddConsumerHandler("effects", "orders", subscriber, func(m *message.Message) error {
		return pgx.BeginFunc(m.Context(), place.Pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(m.Context(), insertEffect, m.UUID)
			return err
		})
	}).AddMiddleware(deduplicator.Middleware)
	if err := router.Run(ctx); err != nil {
		return err
	}
	return subscriber.err
}
