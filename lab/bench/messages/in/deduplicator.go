package in

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// Deduplicator is Watermill's router with its Deduplicator middleware and the default repository.
// The repository is a map in the process that keeps keys for a minute. The middleware checks the
// map before the handler runs. The key is the UUID of the message. The default key would be an
// Adler-32 checksum of the payload, which may be the same for different messages. The documentation
// makes no promise for several processes.
var Deduplicator = Contestant{
	Name: "Watermill Deduplicator, in memory", Repeats: true,
	Consume: func(ctx context.Context, place Place) error {
		keys, err := middleware.NewMapExpiringKeyRepository(time.Minute)
		if err != nil {
			return err
		}
		return route(ctx, place, keys)
	},
}

// route runs a router whose handler inserts the effect of a message in a transaction of its own.
func route(ctx context.Context, place Place, keys middleware.ExpiringKeyRepository) error {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	byUUID := func(m *message.Message) (string, error) { return m.UUID, nil }
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

// subscriber adapts the broker to Watermill's Subscriber interface. It delivers up to place.Workers
// messages at the same time, and acknowledges each message after the router has acknowledged it.
type subscriber struct {
	place Place
	err   error // set before Subscribe's channel is closed
}

func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		s.err = consume(ctx, s.place, 1, func(ctx context.Context, _ Place, all []broker.Delivery) ([]int64, error) {
			m := message.NewMessageWithContext(ctx, all[0].ID, all[0].Payload)
			select {
			case out <- m:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			select {
			case <-m.Acked():
				return tagsOf(all), nil
			case <-m.Nacked():
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		if errors.Is(s.err, context.Canceled) {
			s.err = nil
		}
	}()
	return out, nil
}

func (s *subscriber) Close() error { return nil }
