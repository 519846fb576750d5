package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// deliver sends a webhook as fulfilment does, signed with a secret.
func (s *shop) deliver(secret, id, body string) error {
	server := httptest.NewServer(s.handler)
	defer server.Close()
	publisher, err := webhook.NewPublisher(webhook.PublisherConfig{
		Base: http.DefaultTransport,
		Endpoint: func(context.Context, string) (webhook.Endpoint, error) {
			return webhook.Endpoint{URL: server.URL + "/webhooks/fulfilment", Secrets: []string{secret}}, nil
		},
	})
	if err != nil {
		return err
	}
	return publisher.Publish(s.t.Context(), []outbox.Message{{ID: id, Topic: "shop", Payload: []byte(body)}})
}

func TestShipped_HandlesADeliveryOnce(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	wantStatus(t, s.order(), http.StatusCreated)
	const shipped = `{"order_id":1,"parcel":"box"}`
	id := outbox.NewID()
	for range 3 {
		if err := s.deliver(webhookSecret, id, shipped); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.count(`SELECT count(*) FROM shipped`); n != 1 {
		t.Errorf("%d shipments, want 1", n)
	}
	if got := s.books(t)[0].Order.Shipped; got != "box" {
		t.Errorf("the books have the parcel %q, want box", got)
	}
	if err := s.deliver(newSecret(), outbox.NewID(), shipped); err == nil {
		t.Error("a webhook with another secret was accepted")
	}
	if n := s.count(`SELECT count(*) FROM shipped`); n != 1 {
		t.Errorf("%d shipments after a webhook with another secret, want 1", n)
	}
}

func TestOutbox_HasOneMessagePerCommittedOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	wantStatus(t, s.order(), http.StatusCreated)
	wantStatus(t, s.order(), http.StatusCreated) // a replay
	wantStatus(t, s.order(withKey("none"), withBody(aSamovar)), http.StatusUnprocessableEntity)
	wantStatus(t, s.checkout("card-good", withKey("by-card")), http.StatusCreated)
	wantStatus(t, s.checkout("card-declined", withKey("declined")), http.StatusPaymentRequired)
	if n := s.count(`SELECT count(*) FROM idem.outbox`); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}
