package idemnats_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

// The same message is stored once within the duplicate window.
func TestPublisher_StoresAllFieldsOfAMessageOnce(t *testing.T) {
	t.Parallel()
	js := newBroker(t).connect()
	stream := newStream(t, js)
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	for range 2 {
		err := publisher.Publish(ledger.Within(t), []outbox.Message{{
			ID: "b3f9", Topic: "orders", Key: " a key\r\nof ünusual/bytes\x00", Type: "Order Placed", Payload: []byte("{}"), Headers: map[string]string{"Tenant": "7"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	info, err := stream.Info(ledger.Within(t))
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("%d messages are stored, %v", info.State.Msgs, err)
	}
	got, err := stream.GetMsg(ledger.Within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := nats.Header{
		"Nats-Msg-Id": {"b3f9"}, "Idem-Key": {"%20a%20key%0D%0Aof%20%C3%BCnusual%2Fbytes%00"}, "Idem-Type": {"Order%20Placed"}, "Tenant": {"7"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" || got.Subject+" "+string(got.Data) != "orders {}" {
		t.Errorf("%s %s, headers (-want +got):\n%s", got.Subject, got.Data, diff)
	}
}

// A full stream confirms a message that it has stored before. The relay must not take that for a
// sign that the others have failed.
func TestPublisher_FullStreamCountsNoAttempt(t *testing.T) {
	t.Parallel()
	js := newBroker(t).connect()
	newStream(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew })
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	stored, other := outbox.Message{ID: "stored", Topic: "orders"}, outbox.Message{ID: "other", Topic: "orders"}
	if err := publisher.Publish(ledger.Within(t), []outbox.Message{stored}); err != nil {
		t.Fatal(err)
	}
	err := publisher.Publish(ledger.Within(t), []outbox.Message{stored, other})
	if _, named := errors.AsType[*outbox.PublishError](err); named {
		t.Errorf("err = %v, which names a message", err)
	}
	if _, later := outbox.RetryAfter(err); !later {
		t.Errorf("err = %v, want one that is marked with RetryLater", err)
	}
}
