package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// receiver is an endpoint that answers with a function and stores the requests.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

// newReceiver returns a receiver. A nil answer means 204.
func newReceiver(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	rec := &receiver{}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.requests, rec.bodies = append(rec.requests, r), append(rec.bodies, string(body))
		rec.mu.Unlock()
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(rec.Close)
	return rec
}

func (rec *receiver) endpoint(secrets ...string) webhook.Endpoint {
	if secrets == nil {
		secrets = []string{standardSecret}
	}
	return webhook.Endpoint{URL: rec.URL + "/hooks", Secrets: secrets}
}

// ids returns the IDs of the received webhooks, in order.
func (rec *receiver) ids() []string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var ids []string
	for _, r := range rec.requests {
		ids = append(ids, r.Header.Get("Webhook-Id"))
	}
	return ids
}

func status(code int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(code)
	}
}

// newPublisher returns a Publisher for endpoints, by topic. They are on this machine, so it does
// not use PublicTransport.
func newPublisher(t testing.TB, endpoints map[string]webhook.Endpoint, configure ...func(*webhook.PublisherConfig)) *webhook.Publisher {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	config := webhook.PublisherConfig{Base: base, Timeout: time.Hour, Endpoint: func(_ context.Context, topic string) (webhook.Endpoint, error) {
		endpoint, ok := endpoints[topic]
		if !ok {
			return endpoint, errNoEndpoint
		}
		return endpoint, nil
	}}
	for _, f := range configure {
		f(&config)
	}
	p, err := webhook.NewPublisher(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var errNoEndpoint = errors.New("no server listens")

// message returns a message with the ID topic/key/n.
func message(topic, key string, n int) outbox.Message {
	return outbox.Message{ID: fmt.Sprintf("%s/%s/%d", topic, key, n), Topic: topic, Key: key, Payload: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// failedOf returns the reasons of the messages that were not published.
func failedOf(t testing.TB, err error) map[string]error {
	t.Helper()
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*outbox.PublishError](err)
	if !ok {
		t.Fatalf("the error is %v", err)
	}
	return failed.Failed
}

func wantFailed(t testing.TB, err error, ids ...string) map[string]error {
	t.Helper()
	failed := failedOf(t, err)
	if diff := cmp.Diff(ids, slices.Sorted(maps.Keys(failed))); diff != "" {
		t.Errorf("what has failed (-want +got):\n%s\n%v", diff, failed)
	}
	return failed
}

// Headers of the message do not replace those of the Publisher.
func TestPublisher_SignsWithEverySecret(t *testing.T) {
	t.Parallel()
	rec := newReceiver(t, nil)
	p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint(standardSecret, otherSecret)})
	p.SetClock(func() time.Time { return time.Unix(1614265330, 0) })
	m := outbox.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Topic: "t", Payload: []byte(`{"test": 2432232314}`)}
	withHeaders := m
	withHeaders.Headers = map[string]string{
		"traceparent": "00-4bf92f", "content-type": "application/cloudevents+json", "webhook-id": "another", "Webhook-Timestamp": "1",
		"webhook-signature": "v1,none", "idempotency-key": "another", "Host": "elsewhere", "Content-Length": "1",
	}
	for i, m := range []outbox.Message{m, withHeaders} {
		if err := p.Publish(t.Context(), []outbox.Message{m}); err != nil {
			t.Fatal(err)
		}
		r, body, header := rec.requests[i], rec.bodies[i], map[string]string{}
		for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Content-Type", "Idempotency-Key", "Webhook-Signature", "Traceparent"} {
			header[name] = strings.Join(r.Header[name], "|")
		}
		want := map[string]string{
			"Webhook-Id": m.ID, "Webhook-Timestamp": "1614265330", "Content-Type": "application/json", "Idempotency-Key": `"` + m.ID + `"`,
			"Webhook-Signature": standardDelivery.header["Webhook-Signature"] + " " + webhook.SignStandard(m.ID, "1614265330", m.Payload, otherSecret),
			"Traceparent":       m.Headers["traceparent"],
		}
		if m.Headers != nil {
			want["Content-Type"] = m.Headers["content-type"]
		}
		if diff := cmp.Diff(want, header); diff != "" || r.Method != http.MethodPost || body != string(m.Payload) || r.Host == "elsewhere" {
			t.Errorf("%s %s %q (-want +got):\n%s", r.Host, r.Method, body, diff)
		}
	}
}

func TestPublisher_SignsEachAttemptAnew(t *testing.T) {
	t.Parallel()
	var answers atomic.Int64
	rec := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if answers.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint()})
	var clock atomic.Int64
	p.SetClock(func() time.Time { return time.Unix(1700000000+clock.Add(1), 0) })
	if err := p.Publish(t.Context(), []outbox.Message{message("t", "k", 1)}); err != nil {
		t.Fatal(err)
	}
	times := map[string]bool{}
	for i, r := range rec.requests {
		if _, err := verifier(t, webhook.StandardWebhooks, standardSecret).Verify(r, []byte(rec.bodies[i])); err != nil {
			t.Error(err)
		}
		times[r.Header.Get("Webhook-Timestamp")] = true
	}
	if diff := cmp.Diff([]string{"t/k/1", "t/k/1"}, rec.ids()); diff != "" || len(times) != 2 {
		t.Errorf("%d times; ids:\n%s", len(times), diff)
	}
}

// A redirect is an answer like any other.
func TestPublisher_TreatsOnly2xxAsPublished(t *testing.T) {
	t.Parallel()
	inside := newReceiver(t, nil)
	for _, code := range []int{200, 204, 299, 301, 302, 303, 304, 307, 308, 400, 404, 410, 429, 500, 503} {
		rec := newReceiver(t, status(code, "Location", inside.URL))
		p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint()})
		err := p.Publish(t.Context(), []outbox.Message{message("t", "k", 1)})
		if code < 300 && err != nil {
			t.Errorf("%d: %v", code, err)
		} else if code < 300 {
			continue
		}
		refused, ok := errors.AsType[*webhook.StatusError](wantFailed(t, err, "t/k/1")["t/k/1"])
		if !ok || refused.Status != code {
			t.Errorf("%d: %v", code, err)
		}
	}
	if len(inside.ids()) != 0 {
		t.Error("a redirect was followed")
	}
}

// Secrets are replaced while the publisher runs. It signs with both meanwhile.
func TestPublisher_ReplacesASecret(t *testing.T) {
	t.Parallel()
	var knows webhook.Verifier
	var signs []string
	var rec *receiver
	rec = newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := knows.Verify(r, []byte(rec.bodies[len(rec.bodies)-1])); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	p := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Endpoint = func(context.Context, string) (webhook.Endpoint, error) { return rec.endpoint(signs...), nil }
	})
	old, both, fresh := []string{standardSecret}, []string{standardSecret, otherSecret}, []string{otherSecret}
	for i, phase := range []struct{ signs, knows []string }{{old, old}, {both, old}, {both, fresh}, {fresh, fresh}, {fresh, both}} {
		signs, knows = phase.signs, verifier(t, webhook.StandardWebhooks, phase.knows...)
		if err := p.Publish(t.Context(), []outbox.Message{message("t", "k", i)}); err != nil {
			t.Errorf("phase %d: %v", i, err)
		}
	}
	signs, knows = old, verifier(t, webhook.StandardWebhooks, fresh...)
	wantFailed(t, p.Publish(t.Context(), []outbox.Message{message("t", "k", 9)}), "t/k/9")
}

// Other messages of the endpoint fail without being sent.
func TestPublisher_BacksOffFromAnUnavailableEndpoint(t *testing.T) {
	t.Parallel()
	var code, retryAfter atomic.Value
	code.Store(http.StatusServiceUnavailable)
	retryAfter.Store("")
	rec := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter.Load().(string))
		w.WriteHeader(code.Load().(int))
	})
	p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint()}, func(c *webhook.PublisherConfig) { c.Timeout = time.Minute })
	now := time.Unix(1700000000, 0)
	p.SetClock(func() time.Time { return now })
	var messages []outbox.Message
	for i := range 100 {
		messages = append(messages, message("t", fmt.Sprint(i), 1))
	}
	failed := failedOf(t, p.Publish(t.Context(), messages))
	unsent := 0
	for id, err := range failed {
		if errors.Is(err, webhook.ErrAway) {
			unsent++
		}
		if _, later := outbox.RetryAfter(err); !later {
			t.Errorf("%s: an attempt counts: %v", id, err)
		}
	}
	if came := len(rec.ids()); len(failed) != 100 || unsent < 100-webhook.PerEndpoint || came > 2*webhook.PerEndpoint {
		t.Errorf("%d failed, %d of them unsent; %d requests", len(failed), unsent, came)
	}
	sent := func() bool {
		before := len(rec.ids())
		_ = p.Publish(t.Context(), messages[:1])
		return len(rec.ids()) > before
	}
	for _, wait := range []struct {
		pause time.Duration // until the next request
		field string        // Retry-After of its answer
	}{
		{time.Second, ""}, {2 * time.Second, ""}, {4 * time.Second, "90"}, {90 * time.Second, "999999999"}, {time.Hour, "nonsense"},
	} {
		retryAfter.Store(wait.field)
		now = now.Add(wait.pause - time.Millisecond)
		if sent() {
			t.Errorf("it was asked before %v", wait.pause)
		}
		now = now.Add(time.Millisecond)
		if !sent() {
			t.Errorf("it was not asked after %v", wait.pause)
		}
	}
	code.Store(http.StatusOK)
	now = now.Add(webhook.MaxBackoff)
	if err := p.Publish(t.Context(), messages); err != nil {
		t.Errorf("it is available again: %v", err)
	}
}

// Both topics have a key "k". A key belongs to its topic.
func TestPublisher_HungEndpointBlocksNoOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hangs := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	const n = 200
	var came sync.WaitGroup
	came.Add(n)
	works := newReceiver(t, func(http.ResponseWriter, *http.Request) { came.Done() })
	p := newPublisher(t, map[string]webhook.Endpoint{"hangs": hangs.endpoint(), "works": works.endpoint()}, func(c *webhook.PublisherConfig) {
		c.Concurrency = webhook.PerEndpoint + 1
	})
	var messages []outbox.Message
	var want []string
	for i := range n {
		messages = append(messages, message("hangs", fmt.Sprint(i), 1), message("works", "k", i))
		want = append(want, message("works", "k", i).ID)
	}
	published := make(chan error)
	go func() { published <- p.Publish(t.Context(), messages) }()
	came.Wait() // while the other hangs
	eventually(t, "the requests to the other", func() bool { return len(hangs.ids()) >= webhook.PerEndpoint })
	if asked := len(hangs.ids()); asked > webhook.PerEndpoint {
		t.Errorf("one endpoint has %d requests in progress", asked)
	}
	close(release)
	if err := <-published; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, works.ids()); diff != "" {
		t.Errorf("what came, in its order (-want +got):\n%s", diff)
	}
}

func TestPublisher_ReadsALimitedResponse(t *testing.T) {
	t.Parallel()
	rec := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint()})
	if err := p.Publish(t.Context(), []outbox.Message{message("t", "k", 1)}); err != nil {
		t.Error(err)
	}
}

func TestPublisher_InvalidEndpointFailsItsTopic(t *testing.T) {
	t.Parallel()
	rec := newReceiver(t, nil)
	const token = "/T024BE7LD/secret"
	p := newPublisher(t, map[string]webhook.Endpoint{
		"works":     rec.endpoint(),
		"unsigned":  {URL: rec.URL},
		"short":     {URL: rec.URL, Secrets: []string{"whsec_c2hvcnQ="}},
		"no url":    {URL: "://" + token, Secrets: []string{standardSecret}},
		"no scheme": {URL: token, Secrets: []string{standardSecret}},
		"refused":   {URL: "http://127.0.0.1:1" + token, Secrets: []string{standardSecret}},
	})
	var messages []outbox.Message
	for _, topic := range []string{"works", "unsigned", "short", "no url", "no scheme", "refused", "unknown"} {
		messages = append(messages, message(topic, "k", 1))
	}
	failed := wantFailed(t, p.Publish(t.Context(), messages), "no scheme/k/1", "no url/k/1", "refused/k/1", "short/k/1", "unknown/k/1", "unsigned/k/1")
	if !errors.Is(failed["unknown/k/1"], errNoEndpoint) {
		t.Error(failed["unknown/k/1"])
	}
	for id, err := range failed {
		for _, secret := range []string{token, "c2hvcnQ=", standardSecret} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if diff := cmp.Diff([]string{"works/k/1"}, rec.ids()); diff != "" {
		t.Error(diff)
	}
}

// A response that is not HTTP may have 10 MB before the transport stops, and the error of the
// transport contains it.
func TestPublisher_TruncatesErrors(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nno field "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
			_ = conn.Close()
		}
	}()
	p := newPublisher(t, map[string]webhook.Endpoint{"t": {URL: "http://" + listener.Addr().String(), Secrets: []string{standardSecret}}})
	m := message("t", "k", 1)
	failed := wantFailed(t, p.Publish(t.Context(), []outbox.Message{m}), m.ID)
	if n := len(failed[m.ID].Error()); n > 1000 {
		t.Errorf("the error has %d bytes", n)
	}
}

// PublisherConfig.Endpoint usually reads a database. Messages do not fail while that is
// unavailable.
func TestPublisher_CountsNothingWhileEndpointHasNoDatabase(t *testing.T) {
	t.Parallel()
	unavailable := &pgconn.PgError{Code: "57P01"}
	p := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Endpoint = func(context.Context, string) (webhook.Endpoint, error) { return webhook.Endpoint{}, unavailable }
	})
	err := wantFailed(t, p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "t"}}), "1")["1"]
	if _, waits := outbox.RetryAfter(err); !waits || !errors.Is(err, unavailable) {
		t.Error(err)
	}
}
