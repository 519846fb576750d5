package idemnats_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/idemnats"
	"github.com/idem-go/idem/internal/ledger"
	"github.com/idem-go/idem/outbox"
)

// failed returns the ids that an error names, none if it blames none.
func failed(err error) []string {
	var named *outbox.PublishError
	if !errors.As(err, &named) {
		return nil
	}
	return slices.Sorted(maps.Keys(named.Failed))
}

func payloads(messages []*jetstream.RawStreamMsg) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Data))
	}
	return all
}

func TestPublishedMessageCarriesAllThatItsConsumerNeeds(t *testing.T) {
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

func TestMessagePublishedTwiceIsStoredOnceAndThatIsNoError(t *testing.T) {
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

func TestMessageThatCannotBePublishedIsNamedAndHoldsBackItsKeyAlone(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2000)
	for _, test := range []struct {
		name   string
		bad    outbox.Message
		stream func(*jetstream.StreamConfig)
		reason error
	}{
		{name: "too large for the stream", bad: outbox.Message{Topic: "orders", Payload: []byte(large)}, stream: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }},
		{name: "too large for the server", bad: outbox.Message{Topic: "orders", Payload: make([]byte, 2<<20)}, reason: nats.ErrMaxPayload},
		{name: "no stream has its topic", bad: outbox.Message{Topic: "returns"}, reason: jetstream.ErrStreamNotFound},
		{name: "a topic that is no subject", bad: outbox.Message{Topic: "orders placed"}},
		{name: "a topic that is a wildcard", bad: outbox.Message{Topic: "orders.*"}},
		{name: "a topic of the server's own", bad: outbox.Message{Topic: "$JS.API.STREAM.PURGE.ORDERS"}},
		{name: "a topic that is an inbox", bad: outbox.Message{Topic: "_INBOX.x"}},
		{name: "a topic that a service answers", bad: outbox.Message{Topic: "service"}, reason: jetstream.ErrInvalidJSAck},
		{name: "a topic whose subject panics", bad: outbox.Message{Topic: "panics"}},
		{name: "a header of the broker's", bad: outbox.Message{Topic: "orders", Headers: map[string]string{"nats-rollup": "all"}}},
		{name: "a header that would be changed", bad: outbox.Message{Topic: "orders", Headers: map[string]string{"A": "b\r\nNats-Rollup: all"}}},
		{name: "a name of a header that is none", bad: outbox.Message{Topic: "orders", Headers: map[string]string{"A:b": "c"}}, reason: nats.ErrBadHeaderMsg},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			js := newBroker(t).connect()
			stream := newStream(t, js, func(c *jetstream.StreamConfig) {
				if test.stream != nil {
					test.stream(c)
				}
			})
			bad := test.bad
			bad.ID, bad.Key = "2", "a"
			if _, err := js.Conn().Subscribe("service", func(m *nats.Msg) { _ = m.Respond([]byte(`{"hello":"you"}`)) }); err != nil {
				t.Fatal(err)
			}
			subject := func(m outbox.Message) string {
				if m.Topic == "panics" {
					panic("a bug")
				}
				return m.Topic
			}
			err := idemnats.NewPublisher(js, idemnats.PublisherConfig{Subject: subject}).Publish(ledger.Within(t), []outbox.Message{
				{ID: "1", Topic: bad.Topic, Key: "b", Payload: []byte("1")},
				bad,
				{ID: "3", Topic: bad.Topic, Key: "a", Payload: []byte("3")},
				{ID: "4", Topic: "orders", Key: "b", Payload: []byte("4")},
				{ID: "5", Topic: "orders", Payload: []byte("5")},
			})
			want, names := []string{"1", "4", "5"}, []string{"2", "3"}
			if bad.Topic != "orders" {
				want, names = []string{"4", "5"}, []string{"1", "2", "3"}
			}
			if diff := cmp.Diff(names, failed(err)); diff != "" {
				t.Errorf("named (-want +got):\n%s\n%v", diff, err)
			}
			if test.reason != nil && !errors.Is(err, test.reason) {
				t.Errorf("%v, want %v", err, test.reason)
			}
			got := payloads(stored(t, stream))
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBrokerThatIsAwayBlamesNoMessage(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*testing.T, *broker, jetstream.JetStream){
		"down": func(t *testing.T, b *broker, _ jetstream.JetStream) { b.stop() },
		"without JetStream": func(t *testing.T, b *broker, js jetstream.JetStream) {
			if err := b.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
		},
		"full": func(t *testing.T, b *broker, js jetstream.JetStream) {
			_, err := js.UpdateStream(ledger.Within(t), jetstream.StreamConfig{
				Name: "ORDERS", Subjects: []string{"orders", "orders.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		"closed": func(t *testing.T, _ *broker, js jetstream.JetStream) { js.Conn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			js := b.connect()
			newStream(t, js)
			publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{Timeout: 50 * time.Millisecond})
			if err := idemnats.NewPublisher(js, idemnats.PublisherConfig{}).Publish(ledger.Within(t), []outbox.Message{{ID: "0", Topic: "orders"}}); err != nil {
				t.Fatal(err)
			}
			breakIt(t, b, js)
			err := publisher.Publish(ledger.Within(t), []outbox.Message{{ID: "1", Topic: "orders", Key: "a"}, {ID: "2", Topic: "orders", Key: "a"}, {ID: "3", Topic: "orders"}})
			if err == nil || failed(err) != nil {
				t.Errorf("%v, want an error that names none", err)
			}
		})
	}
}

func TestEndOfTheContextEndsPublishing(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	js := b.connect()
	b.stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- idemnats.NewPublisher(js, idemnats.PublisherConfig{Timeout: time.Hour}).Publish(ctx, []outbox.Message{{ID: "1", Topic: "orders"}})
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	case <-time.After(ledger.Limit):
		t.Error("it goes on")
	}
}
