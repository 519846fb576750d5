package post

import (
	"context"
	"errors"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/torture/broker"
	"github.com/idem-go/idem/torture/letter"
)

// sender is what the relay publishes by.
type sender struct{ *office }

// Publish gives messages to the broker.
func (s *sender) Publish(ctx context.Context, messages []outbox.Message) error {
	var sent []broker.Sent
	for _, m := range messages {
		l, err := letter.Decode(m.Payload)
		sent = append(sent, broker.Sent{Letter: l, Altered: err != nil || altered(&m, &l)})
	}
	refused, err := s.broker.Publish(ctx, sent)
	if err != nil || len(refused) == 0 {
		return err
	}
	failed := map[string]error{}
	for id, why := range refused {
		failed[id] = errors.New(why)
	}
	return &outbox.PublishError{Failed: failed}
}

// altered reports whether a message is not what was put into the outbox.
func altered(m *outbox.Message, l *letter.Letter) bool {
	return m.ID != l.ID || m.Topic != l.Topic || m.Key != l.Key || m.Type != "letter" || m.Headers["cause"] != l.Cause
}
