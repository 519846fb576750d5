package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// relay runs a relay until the end of the test, or until stop is called.
func relay(t *testing.T, sender *pgxpool.Pool, publisher outbox.Publisher, attempts int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := outbox.NewRelay(sender, publisher, outbox.RelayConfig{
			MaxAttempts: attempts, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond, Poll: 20 * time.Millisecond, Drain: time.Millisecond, Logger: quiet,
		}).Run(ctx)
		if err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

func addTo(t *testing.T, sender *pgxpool.Pool, messages ...outbox.Message) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), sender, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, messages...) }); err != nil {
		t.Fatal(err)
	}
}

// of returns n messages of a topic and key.
func of(topic, key string, n int) []outbox.Message {
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: topic, Key: key, Payload: fmt.Append(nil, i)}
	}
	return messages
}

func countIn(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits until a condition is true.
var eventually = waiting.Until

// Every third response is lost after the effect, another relay takes over, and the secret is
// replaced.
func TestPublisher_DeliversOnceAndInOrder(t *testing.T) {
	t.Parallel()
	p := newTill(t)
	handler := p.handler("StandardWebhooks", func(c *webhook.HandlerConfig) {
		c.Verifier = verifier(t, webhook.StandardWebhooks, standardSecret, otherSecret)
		c.Inbox = []inbox.Option{inbox.WithBackoff(time.Millisecond, time.Millisecond)}
	})
	handler.SetClock(time.Now)
	var requests atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			w = httptest.NewRecorder()
		}
		handler.ServeHTTP(w, r)
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
		for n := from; n < to; n++ {
			for k := range keys {
				key, payload := fmt.Sprint(k), fmt.Sprintf(`"%d/%d"`, k, n)
				addTo(t, sender, outbox.Message{Topic: "partner", Key: key, Payload: []byte(payload)})
				want[key] = append(want[key], payload)
			}
		}
	}
	add(0, each/2)
	stop := relay(t, sender, publisher, 1_000_000)
	eventually(t, "some effects", func() bool { return p.payments() > keys })
	stop()
	secret.Store(otherSecret)
	add(each/2, each)
	relay(t, sender, publisher, 1_000_000)
	eventually(t, "all effects", func() bool { return p.payments() == keys*each })
	got := map[string][]string{}
	rows, _ := p.pool.Query(t.Context(), "select convert_from(payload, 'UTF8') from payments order by n")
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

// The endpoint blocks no other.
func TestPublisher_RetryAfterCountsNoAttempt(t *testing.T) {
	t.Parallel()
	away, fast := newReceiver(t, status(http.StatusServiceUnavailable, "Retry-After", "900")), newReceiver(t, nil)
	sender := pgtest.New(t)
	relay(t, sender, newPublisher(t, map[string]webhook.Endpoint{"away": away.endpoint(), "fast": fast.endpoint()}), 3)
	for i := range 20 {
		addTo(t, sender, of("away", fmt.Sprint(i), 1)...)
	}
	eventually(t, "a request", func() bool { return len(away.ids()) > 0 })
	for i := range 10 {
		addTo(t, sender, of("fast", "f", 1)...)
		eventually(t, "one of the others", func() bool { return len(fast.ids()) > i })
	}
	if n := countIn(t, sender, `select (select count(*) from idem.dead_letters) + count(*) from idem.outbox where attempts > 0`); n > 0 {
		t.Errorf("%d attempts are counted", n)
	}
	if n := len(away.ids()); n > 2*webhook.PerEndpoint {
		t.Errorf("it was asked %d times", n)
	}
}

// The test tries each function of the application. A refused message is a dead letter.
func TestPublisher_PanicOrTimeoutFailsItsTopic(t *testing.T) {
	t.Parallel()
	fast, gone := newReceiver(t, nil), newReceiver(t, status(http.StatusGone))
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "panics.example" {
			panic("a bug")
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	publisher := newPublisher(t, nil, func(c *webhook.PublisherConfig) {
		c.Base = base
		c.Endpoint = func(_ context.Context, topic string) (webhook.Endpoint, error) {
			switch topic {
			case "panics":
				panic("no endpoint")
			case "transport":
				return webhook.Endpoint{URL: "http://panics.example", Secrets: []string{standardSecret}}, nil
			case "times out":
				return webhook.Endpoint{}, fmt.Errorf("query: %w", context.DeadlineExceeded)
			case "gone":
				return gone.endpoint(), nil
			}
			return fast.endpoint(), nil
		}
	})
	sender := pgtest.New(t)
	addTo(t, sender, slices.Concat(of("times out", "a", 3), of("panics", "a", 1), of("transport", "a", 1), of("gone", "a", 1), of("fast", "a", 5))...)
	relay(t, sender, publisher, 3)
	eventually(t, "the others", func() bool { return len(fast.ids()) == 5 })
	eventually(t, "the dead letters", func() bool {
		return countIn(t, sender, `select count(*) from idem.dead_letters where class = 'panic' or class = 'status 410'`) == 3
	})
	if n := countIn(t, sender, `select count(*) from idem.outbox where aggregatetype = 'times out' and coalesce(attempts, 0) = 0`); n != 3 {
		t.Errorf("of %d no attempt is counted", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
