package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// relayTo runs a relay until the end of the test.
func relayTo(t *testing.T, publisher outbox.Publisher) *pgxpool.Pool {
	t.Helper()
	sender := pgtest.New(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- outbox.NewRelay(sender, publisher, outbox.RelayConfig{
			MaxAttempts: 3, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond, Poll: 20 * time.Millisecond, Drain: time.Millisecond, Logger: quiet,
		}).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return sender
}

func addTo(t *testing.T, sender *pgxpool.Pool, messages ...outbox.Message) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), sender, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, messages...) }); err != nil {
		t.Fatal(err)
	}
}

func of(topic, key string, n int) []outbox.Message {
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: topic, Key: key, Payload: fmt.Append(nil, i)}
	}
	return messages
}

// eventually waits until a condition is true.
var eventually = waiting.Until

// The endpoint answers when the test lets it. None of its messages fails.
func TestPublisher_SlowEndpointBlocksNoOther(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}, 1000), make(chan struct{})
	slow := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	fast := newReceiver(t, nil)
	endpoints := map[string]webhook.Endpoint{"slow": slow.endpoint()}
	for i := range 20 {
		endpoints[fmt.Sprint("fast ", i)] = fast.endpoint()
	}
	sender := relayTo(t, newPublisher(t, endpoints))
	addTo(t, sender, of("slow", "k", 150)...)
	<-asked
	for i := range 20 {
		addTo(t, sender, of(fmt.Sprint("fast ", i), "f", 1)...)
	}
	eventually(t, "the messages of the others", func() bool { return len(fast.ids()) == 20 })
	var held int
	if err := sender.QueryRow(t.Context(), `select count(*) from idem.outbox where held`).Scan(&held); err != nil || held > 0 {
		t.Errorf("%d messages are held, %v", held, err)
	}
	close(answer)
	eventually(t, "those of the slow one", func() bool { return len(slow.ids()) >= 150 })
	slow.mu.Lock()
	defer slow.mu.Unlock()
	var met []string
	for i, body := range slow.bodies {
		if !slices.Contains(slow.bodies[:i], body) {
			met = append(met, body)
		}
	}
	for i, body := range met {
		if body != fmt.Sprint(i) {
			t.Fatalf("in the place %d is %s", i, body)
		}
	}
}

// The endpoint blocks no other.
func TestPublisher_RetryAfterCountsNoAttempt(t *testing.T) {
	t.Parallel()
	away, fast := newReceiver(t, status(http.StatusServiceUnavailable, "Retry-After", "900")), newReceiver(t, nil)
	sender := relayTo(t, newPublisher(t, map[string]webhook.Endpoint{"away": away.endpoint(), "fast": fast.endpoint()}))
	for i := range 50 {
		addTo(t, sender, of("away", fmt.Sprint(i), 1)...)
	}
	eventually(t, "a request", func() bool { return len(away.ids()) > 0 })
	for i := range 30 {
		addTo(t, sender, of("fast", "f", 1)...)
		eventually(t, "one of the others", func() bool { return len(fast.ids()) > i })
	}
	var counted int
	if err := sender.QueryRow(t.Context(), `select (select count(*) from idem.dead_letters) + count(*) from idem.outbox where attempts > 0`).Scan(&counted); err != nil || counted > 0 {
		t.Errorf("%d attempts are counted, %v", counted, err)
	}
	if n := len(away.ids()); n > 2*webhook.PerEndpoint {
		t.Errorf("it was asked %d times", n)
	}
}

// The test tries each function of the application.
func TestPublisher_PanicOrTimeoutFailsItsTopic(t *testing.T) {
	t.Parallel()
	fast := newReceiver(t, nil)
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "panics.example" {
			panic("a bug")
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	publisher := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Base, c.Timeout = base, time.Hour
		c.Endpoint = func(_ context.Context, topic string) (webhook.Endpoint, error) {
			switch topic {
			case "panics":
				panic("no endpoint")
			case "transport":
				return webhook.Endpoint{URL: "http://panics.example", Secrets: []string{standardSecret}}, nil
			case "times out":
				return webhook.Endpoint{}, fmt.Errorf("query: %w", context.DeadlineExceeded)
			}
			return fast.endpoint(), nil
		}
	})
	sender := relayTo(t, publisher)
	addTo(t, sender, slices.Concat(of("times out", "a", 3), of("panics", "a", 1), of("transport", "a", 1), of("fast", "a", 5))...)
	eventually(t, "the others", func() bool { return len(fast.ids()) == 5 })
	dead := func() (n int) {
		if err := sender.QueryRow(t.Context(), `select count(*) from idem.dead_letters where class = 'panic'`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	eventually(t, "the dead letters", func() bool { return dead() == 2 })
	var counted int
	if err := sender.QueryRow(t.Context(), `select count(*) from idem.outbox where aggregatetype = 'times out' and coalesce(attempts, 0) = 0`).Scan(&counted); err != nil || counted != 3 {
		t.Errorf("of %d no attempt is counted, %v", counted, err)
	}
}

// These are messages of an unavailable endpoint, and messages that were not sent.
func TestPublisher_MarksErrorsWithRetryLater(t *testing.T) {
	t.Parallel()
	rec := newReceiver(t, status(http.StatusServiceUnavailable, "Retry-After", "90"))
	p := newPublisher(t, map[string]webhook.Endpoint{"t": rec.endpoint()}, func(c *webhook.PublisherConfig) { c.Timeout = time.Minute })
	failed := wantFailed(t, p.Publish(t.Context(), []outbox.Message{message("t", "k", 1), message("t", "k", 2)}), "t/k/1", "t/k/2")
	for id, err := range failed {
		if after, ok := outbox.RetryAfter(err); !ok || after < 80*time.Second || after > 90*time.Second {
			t.Errorf("%s: %v", id, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for id, err := range wantFailed(t, p.Publish(ctx, []outbox.Message{message("t", "k", 1)}), "t/k/1") {
		if after, ok := outbox.RetryAfter(err); !ok || after != 0 {
			t.Errorf("%s: %v", id, err)
		}
	}
}
