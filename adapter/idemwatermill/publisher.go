package idemwatermill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig changes a Publisher. The zero value works.
type PublisherConfig struct {
	// Blames says that an error is the message's own: it is too large, or its topic does not exist. Other errors are a message's own
	// if the broker takes another message after it.
	Blames func(err error) bool
}

const (
	// outage is how many errors in a row, with nothing published after them, say that the broker is away.
	outage = 3
	// patience is how long it may take to find out.
	patience = 10 * time.Second
)

// Publisher is an outbox.Publisher by a publisher of Watermill's.
type Publisher struct {
	publisher message.Publisher
	config    PublisherConfig
}

// NewPublisher returns a Publisher. Watermill's has to return when the broker has the message, and not before: one that buffers
// loses what it has when its process ends.
func NewPublisher(publisher message.Publisher, config PublisherConfig) *Publisher {
	if config.Blames == nil {
		config.Blames = func(error) bool { return false }
	}
	return &Publisher{publisher, config}
}

// Publish publishes one message after the other. Watermill's errors do not say which of several messages they are about.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	failed := map[string]error{}
	unsure, lost := 0, time.Duration(0) // since a message was published last
	var last error
	for _, m := range messages {
		if err := fits(m); err != nil {
			failed[m.ID] = err
			continue
		}
		began := time.Now()
		err := outbox.Recover(func() error { return p.publisher.Publish(m.Topic, watermillMessage(ctx, m)) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			unsure, lost = 0, 0
			continue
		}
		failed[m.ID], last = err, err
		if errors.Is(err, outbox.ErrPanicked) || p.blames(err) {
			continue
		}
		unsure++
		if lost += time.Since(began); lost > patience {
			return err
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case unsure >= outage, unsure > 0 && len(failed) == len(messages):
		return last
	}
	return &outbox.PublishError{Failed: failed}
}

// blames asks PublisherConfig.Blames. If that panics it is as if it had said no.
func (p *Publisher) blames(err error) (yes bool) {
	_ = outbox.Recover(func() error {
		yes = p.config.Blames(err)
		return nil
	})
	return yes
}

// fits says that a message has headers that its consumer would take for its key or its type.
func fits(m outbox.Message) error {
	for _, name := range []string{MetadataKey, MetadataType} {
		if _, taken := m.Headers[name]; taken {
			return fmt.Errorf("idemwatermill: the message cannot be published as it is: %s is the name of a header that is not its own", name)
		}
	}
	return nil
}

// watermillMessage is the message as Watermill has it.
func watermillMessage(ctx context.Context, m outbox.Message) *message.Message {
	out := message.NewMessage(m.ID, m.Payload)
	out.SetContext(ctx)
	for name, value := range m.Headers {
		out.Metadata.Set(name, value)
	}
	if m.Key != "" {
		out.Metadata.Set(MetadataKey, m.Key)
	}
	if m.Type != "" {
		out.Metadata.Set(MetadataType, m.Type)
	}
	return out
}
