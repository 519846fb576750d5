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

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// partner is the service at the other end: a Publisher's webhooks arrive at its Handler.
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

// knows sets the secrets by which the partner verifies.
func (p *partner) knows(secrets ...string) {
	h := p.till.handler("StandardWebhooks", func(c *webhook.HandlerConfig) {
		c.Verifier = verifier(p.t, webhook.StandardWebhooks, secrets...)
		c.Inbox = []inbox.Option{inbox.WithPause(time.Millisecond, time.Millisecond)}
	})
	h.SetClock(time.Now)
	p.handler.Store(h)
}

func (p *partner) events() []string {
	p.t.Helper()
	rows, err := p.pool.Query(context.Background(), "select event from payments order by ctid")
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

// Each side changes its secret when it likes, the sender signs by both meanwhile, and nothing is lost, refused or done twice.
func TestSecretIsReplacedWithoutLosingAWebhook(t *testing.T) {
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
		for range 2 { // a relay that dies before it has noted what was published publishes again
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

// The partner fails for a while, between messages of a key and in the middle of them.
func TestOrderOfAKeyIsKeptThroughFailures(t *testing.T) {
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
		if round == 2 {
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
		now = now.Add(time.Second) // what the endpoint asks for at most, as its pauses are short
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
