package idemnats_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

// A full stream confirms a message that it has stored before. The relay must not take that for a
// sign that the others have failed.
func TestPublisher_FullStreamCountsNoAttempt(t *testing.T) {
	t.Parallel()
	js := newBroker(t).connect()
	newStream(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew })
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	stored, other := outbox.Message{ID: "stored", Topic: "orders"}, outbox.Message{ID: "other", Topic: "orders"}
	for range 2 { // the second time, the stream recognizes the message and does not store it
		if err := publisher.Publish(ledger.Within(t), []outbox.Message{stored}); err != nil {
			t.Fatal(err)
		}
	}
	err := publisher.Publish(ledger.Within(t), []outbox.Message{stored, other})
	if _, named := errors.AsType[*outbox.PublishError](err); named {
		t.Errorf("err = %v, which names a message", err)
	}
	if _, later := outbox.RetryAfter(err); !later {
		t.Errorf("err = %v, want one that is marked with RetryLater", err)
	}
}
