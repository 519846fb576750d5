package idemnats_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

func payloads(messages []*jetstream.RawStreamMsg) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Data))
	}
	return all
}

func TestPublisher_SendsAllFieldsOfAMessage(t *testing.T) {
	t.Parallel()
	js := newBroker(t).connect()
	stream := newStream(t, js)
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	err := publisher.Publish(ledger.Within(t), []outbox.Message{{
		ID: "b3f9", Topic: "orders", Key: " a key\r\nof ünusual/bytes\x00", Type: "Order Placed", Payload: []byte("{}"), Headers: map[string]string{"Tenant": "7"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := stored(t, stream)[0]
	if diff := cmp.Diff("orders {}", got.Subject+" "+string(got.Data)); diff != "" {
		t.Error(diff)
	}
	want := nats.Header{
		"Nats-Msg-Id": {"b3f9"}, "Idem-Key": {"%20a%20key%0D%0Aof%20%C3%BCnusual%2Fbytes%00"}, "Idem-Type": {"Order%20Placed"}, "Tenant": {"7"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestPublisher_AcceptsADuplicate(t *testing.T) {
	t.Parallel()
	js := newBroker(t).connect()
	stream := newStream(t, js)
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{})
	for range 2 {
		if err := publisher.Publish(ledger.Within(t), []outbox.Message{{ID: "1", Topic: "orders", Payload: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a"}, payloads(stored(t, stream))); diff != "" {
		t.Error(diff)
	}
}
