package in

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

// subscriber is the broker as a Watermill subscriber. It has up to place.Workers messages in
// progress and acknowledges each when its handler has returned.
type subscriber struct {
	place Place
	err   error // set before Subscribe's channel is closed
}

func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		s.err = consume(ctx, s.place, 1, func(ctx context.Context, all []broker.Delivery) ([]int64, error) {
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
