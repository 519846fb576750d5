package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// partner is the receiving service: its Handler receives the webhooks of a Publisher.
type partner struct {
	*till
	handler atomic.Pointer[webhook.Handler]
	server  *httptest.Server
}

func newPartner(t *testing.T) *partner {
	t.Helper()
	p := &partner{till: newTill(t)}
	p.knows(standardSecret)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(p.server.Close)
	return p
}

// knows sets the secrets of the partner.
func (p *partner) knows(secrets ...string) {
	h := p.till.handler("StandardWebhooks", func(c *webhook.HandlerConfig) {
		c.Verifier = verifier(p.t, webhook.StandardWebhooks, secrets...)
		c.Inbox = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond)}
	})
	h.SetClock(time.Now)
	p.handler.Store(h)
}

func (p *partner) events() []string {
	p.t.Helper()
	rows, err := p.pool.Query(context.Background(), "select event from payments order by n")
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	var events []string
	for rows.Next() {
		var event string
		if err := rows.Scan(&event); err != nil {
			p.t.Fatal(err)
		}
		events = append(events, event)
	}
	return events
}

// Sender and receiver change the secret independently, and the sender signs with both meanwhile. No
// webhook is lost, refused or handled twice.
func TestPublisher_ReplacesASecret(t *testing.T) {
	t.Parallel()
	p := newPartner(t)
	var signs atomic.Pointer[[]string]
	publisher := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Endpoint = func(context.Context, string) (webhook.Endpoint, error) {
			return webhook.Endpoint{URL: p.server.URL, Secrets: *signs.Load()}, nil
		}
	})
	var want []string
	for i, phase := range []struct{ signs, knows []string }{
		{[]string{standardSecret}, []string{standardSecret}},
		{[]string{standardSecret, otherSecret}, []string{standardSecret}},
		{[]string{standardSecret, otherSecret}, []string{otherSecret}},
		{[]string{otherSecret}, []string{otherSecret}},
		{[]string{otherSecret}, []string{otherSecret, standardSecret}},
	} {
		signs.Store(&phase.signs)
		p.knows(phase.knows...)
		for range 2 { // a relay that dies before it stores the outcome publishes again
			messages := []outbox.Message{message("payments", "k", 2*i), message("payments", "k", 2*i+1)}
			if err := publisher.Publish(t.Context(), messages); err != nil {
				t.Errorf("phase %d: %v", i, err)
			}
		}
		want = append(want, fmt.Sprintf("payments/k/%d", 2*i), fmt.Sprintf("payments/k/%d", 2*i+1))
	}
	if diff := cmp.Diff(want, p.events()); diff != "" {
		t.Errorf("the effects, in their order (-want +got):\n%s", diff)
	}
	old := []string{standardSecret}
	signs.Store(&old)
	p.knows(otherSecret)
	refused, ok := errors.AsType[*webhook.StatusError](failedOf(t, publisher.Publish(t.Context(), []outbox.Message{message("payments", "k", 99)}))["payments/k/99"])
	if !ok || refused.Status != http.StatusUnauthorized {
		t.Errorf("by the old secret alone: %v", refused)
	}
}

// The receiver fails for a while, between the messages of a key.
func TestPublisher_KeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	p := newPartner(t)
	publisher := newPublisher(t, map[string]webhook.Endpoint{"t": {URL: p.server.URL, Secrets: []string{standardSecret}}})
	now := time.Now()
	publisher.SetClock(func() time.Time { return now })
	p.handler.Load().SetClock(func() time.Time { return now })
	var left, want []outbox.Message
	for i := range 12 {
		left = append(left, message("t", fmt.Sprint(i%3), i))
	}
	want = append(want, left...)
	p.fail.Store(&errOutOfOrder)
	for round := 0; len(left) > 0; round++ {
		if round == 1 {
			p.fail.Store(nil)
		}
		failed := failedOf(t, publisher.Publish(t.Context(), left))
		var again []outbox.Message
		for _, m := range left {
			if failed[m.ID] != nil {
				again = append(again, m)
			}
		}
		left = again
		now = now.Add(time.Second) // the maximum Retry-After of the endpoint
	}
	byKey := func(ids []string) map[string][]string {
		keys := map[string][]string{}
		for _, id := range ids {
			key := strings.Split(id, "/")[1]
			keys[key] = append(keys[key], id)
		}
		return keys
	}
	var ids []string
	for _, m := range want {
		ids = append(ids, m.ID)
	}
	if diff := cmp.Diff(byKey(ids), byKey(p.events())); diff != "" {
		t.Errorf("the effects, in their order (-want +got):\n%s", diff)
	}
}

// Every third response is lost after the effect, another relay takes over, and the secret is
// replaced.
func TestPublisher_DeliversOnceAndInOrder(t *testing.T) {
	t.Parallel()
	p := newPartner(t)
	p.knows(standardSecret, otherSecret)
	var requests atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			w = httptest.NewRecorder()
		}
		p.handler.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	var secret atomic.Value
	secret.Store(standardSecret)
	publisher := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Endpoint = func(context.Context, string) (webhook.Endpoint, error) {
			return webhook.Endpoint{URL: front.URL, Secrets: []string{secret.Load().(string)}}, nil
		}
	})
	sender := pgtest.New(t)
	const keys, each = 4, 15
	want := map[string][]string{}
	add := func(from, to int) {
		err := pgx.BeginFunc(t.Context(), sender, func(tx pgx.Tx) error {
			for n := from; n < to; n++ {
				for k := range keys {
					key, payload := fmt.Sprint(k), fmt.Sprintf(`"%d/%d"`, k, n)
					if err := outbox.Add(t.Context(), tx, outbox.Message{Topic: "partner", Key: key, Payload: []byte(payload)}); err != nil {
						return err
					}
					want[key] = append(want[key], payload)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	relay := func(until func() bool) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- outbox.NewRelay(sender, publisher, outbox.RelayConfig{
				MaxAttempts: 1_000_000, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond, Poll: 20 * time.Millisecond, Logger: quiet,
			}).Run(ctx)
		}()
		for !until() {
			time.Sleep(5 * time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	add(0, each/2)
	relay(func() bool { return p.payments() > keys })
	secret.Store(otherSecret)
	add(each/2, each)
	relay(func() bool { return p.payments() == keys*each })

	got := map[string][]string{}
	rows, err := p.pool.Query(t.Context(), "select convert_from(payload, 'UTF8') from payments order by n")
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range payloads {
		got[payload[1:2]] = append(got[payload[1:2]], payload)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the effects of each key, in their order (-want +got):\n%s", diff)
	}
}

// The other topic has the same keys, and is not blocked.
func TestPublisher_DeadLettersWebhooksAnswered410(t *testing.T) {
	t.Parallel()
	gone, works := newReceiver(t, status(http.StatusGone)), newReceiver(t, nil)
	publisher := newPublisher(t, map[string]webhook.Endpoint{"gone": gone.endpoint(), "works": works.endpoint()})
	sender := pgtest.New(t)
	err := pgx.BeginFunc(t.Context(), sender, func(tx pgx.Tx) error {
		for n := range 5 {
			err := outbox.Add(t.Context(), tx,
				outbox.Message{Topic: "gone", Key: "k", Payload: fmt.Append(nil, n)}, outbox.Message{Topic: "works", Key: "k", Payload: fmt.Append(nil, n)})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, dead := make(chan error), make(chan outbox.DeadLetter, 5)
	go func() {
		ended <- outbox.NewRelay(sender, publisher, outbox.RelayConfig{
			MaxAttempts: 1, Poll: 20 * time.Millisecond, Logger: quiet, OnDead: func(d outbox.DeadLetter) { dead <- d },
		}).Run(ctx)
	}()
	first := <-dead
	for len(works.ids()) < 5 {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if first.Class != "status 410" || strings.Contains(first.Reason, gone.URL) {
		t.Errorf("%+v", first)
	}
}
