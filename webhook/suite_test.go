package webhook_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
	"github.com/idem-go/idem/webhook"
)

func TestPublisher_PassesTheSuite(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
}

// moody is an endpoint that can be unavailable.
type moody struct {
	mu      sync.Mutex
	status  int           // answered to everything, if not 0
	hanging chan struct{} // requests block until it is closed
	taken   []outbox.Message
}

func (e *moody) set(status int, hanging chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.hanging = status, hanging
}

func (e *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(r.Body)
	e.mu.Lock()
	status, hanging := e.status, e.hanging
	e.mu.Unlock()
	switch {
	case err != nil:
		status = http.StatusBadRequest
	case hanging != nil:
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
		status = http.StatusServiceUnavailable
	case r.Header.Get("Refuse") != "":
		status = http.StatusBadRequest
	case status == 0:
		e.take(r, payload)
		status = http.StatusNoContent
	}
	w.WriteHeader(status)
}

func (e *moody) take(r *http.Request, payload []byte) {
	m := outbox.Message{ID: r.Header.Get("Webhook-Id"), Payload: payload, Headers: map[string]string{}}
	for name, values := range r.Header {
		m.Headers[name] = values[0]
	}
	withoutOurs(m.Headers)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken = append(e.taken, m)
}

func (e *moody) arrived(context.Context) (taken []outbox.Message, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken, e.taken = e.taken, nil
	return taken, nil
}

// withoutOurs removes the headers that a webhook or HTTP always sets.
func withoutOurs(headers map[string]string) {
	maps.DeleteFunc(headers, func(name, value string) bool {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "User-Agent", "Accept-Encoding", "Trailer":
			return true
		case "Content-Type":
			return value == "application/json"
		}
		return strings.HasPrefix(name, "Webhook-") || strings.HasPrefix(name, "Idempotency-")
	})
}

func newTarget(t testing.TB) outboxtest.Target {
	e := &moody{}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	p := newPublisher(t, map[string]webhook.Endpoint{"orders": {URL: server.URL, Secrets: []string{standardSecret}}}, func(c *webhook.PublisherConfig) {
		endpoint := c.Endpoint
		c.Endpoint = func(ctx context.Context, topic string) (webhook.Endpoint, error) {
			if topic == "panics" {
				panic("a bug")
			}
			return endpoint(ctx, topic)
		}
	})
	topic := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Topic = name } }
	return outboxtest.Target{
		Publisher: p, Topic: "orders", Arrived: e.arrived,
		Carried: func(m *outbox.Message) {
			m.Key, m.Type = "", ""
			sent := map[string]string{}
			for name, value := range m.Headers {
				sent[http.CanonicalHeaderKey(name)] = value
			}
			withoutOurs(sent)
			m.Headers = sent
		},
		Bad: map[string]func(*outbox.Message){
			"no endpoint": topic("returns"), "its endpoint panics": topic("panics"),
			"refused":                  func(m *outbox.Message) { m.Headers = map[string]string{"Refuse": "me"} },
			"a header that HTTP lacks": func(m *outbox.Message) { m.Headers = map[string]string{"X-Note": "a\r\nWebhook-Id: another"} },
		},
		Away: map[string]func() func(){
			"503": func() func() { e.set(http.StatusServiceUnavailable, nil); return func() { e.set(0, nil) } },
			"hangs": func() func() {
				hanging := make(chan struct{})
				e.set(0, hanging)
				return func() { e.set(0, nil); close(hanging) }
			},
			"gone": func() func() { server.CloseClientConnections(); server.Listener.Close(); return nil },
		},
	}
}
