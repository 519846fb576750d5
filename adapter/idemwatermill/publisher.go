package idemwatermill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/outbox"
)

// PublisherConfig configures a Publisher. The zero value works.
type PublisherConfig struct {
	// Blames reports whether an error concerns its message alone: the message is too large, or its
	// topic does not exist. Publish takes other errors for an outage of the broker if it publishes no
	// message of the call, if it gets three or more of them after its last success in the call, or if
	// they take more than ten seconds without a success in between. Otherwise Publish attributes each
	// error to its message. By default, Blames returns false.
	Blames func(err error) bool
}

const (
	// outageErrors is a threshold: if a call ends with at least this many errors since its last
	// success, the broker counts as unavailable. Errors that concern only their message are left
	// out.
	outageErrors = 3
	// outageTime is how long Publish may spend on such errors since its last success. After that
	// time the broker counts as unavailable, and Publish returns.
	outageTime = 10 * time.Second
)

// Publisher publishes the messages of an outbox with a publisher of Watermill.
type Publisher struct {
	publisher message.Publisher
	config    PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. publisher must not return before the broker has the message: a
// buffered message is lost if the process ends.
func NewPublisher(publisher message.Publisher, config PublisherConfig) *Publisher {
	if config.Blames == nil {
		config.Blames = func(error) bool { return false }
	}
	return &Publisher{publisher, config}
}

// Publish publishes one message after another, because an error of Watermill does not name the
// message that it concerns. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	failed := map[string]error{}
	unattributed, spent := 0, time.Duration(0) // the number of errors since the last success, and the time that they took
	var last error
	for _, m := range messages {
		if err := checkHeaders(m); err != nil {
			failed[m.ID] = err
			continue
		}
		began := time.Now()
		err := outbox.Recover(func() error { return p.publisher.Publish(m.Topic, watermillMessage(ctx, m)) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			unattributed, spent = 0, 0
			continue
		}
		failed[m.ID], last = err, err
		if errors.Is(err, outbox.ErrPanicked) || p.concernsMessage(err) {
			continue
		}
		unattributed++
		if spent += time.Since(began); spent > outageTime {
			return err
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case unattributed >= outageErrors, unattributed > 0 && len(failed) == len(messages):
		return last
	}
	return &outbox.PublishError{Failed: failed}
}

// concernsMessage calls PublisherConfig.Blames. It returns false if Blames panics.
func (p *Publisher) concernsMessage(err error) (concerns bool) {
	_ = outbox.Recover(func() error {
		concerns = p.config.Blames(err)
		return nil
	})
	return concerns
}

// checkHeaders returns an error if m has a header with the name of MetadataKey or MetadataType,
// which a consumer would mistake for the key or the type.
func checkHeaders(m outbox.Message) error {
	for _, name := range []string{MetadataKey, MetadataType} {
		if _, taken := m.Headers[name]; taken {
			return fmt.Errorf("idemwatermill: the message cannot be published: its header %s is reserved; rename the header", name)
		}
	}
	return nil
}

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
