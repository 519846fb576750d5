package idemclient_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// shop is a server that can be down, and counts requests. Like a server with idem, it places one
// order for each key.
type shop struct {
	mu       sync.Mutex
	down     http.HandlerFunc // nil: it is up
	requests int
	orders   map[string]int
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.requests++
	down := s.down
	if key := r.Header.Get("Idempotency-Key"); down == nil && s.orders[key] == 0 {
		s.orders[key]++
	}
	s.mu.Unlock()
	if down != nil {
		down(w, r)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *shop) set(down http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// flapping answers and breaks the connection in turn, so that an attempt often meets a connection
// that was good before.
func flapping() http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 {
			abort(w, r)
		}
		unavailable(w, r)
	}
}

// The documentation promises at most 240 requests for 200 calls to a server that is down.
func TestBudget_OutageOf200CallsSends240Requests(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]http.HandlerFunc{
		"answers 503":             unavailable,
		"breaks the connection":   abort,
		"flaps between the two":   flapping(),
		"says to come back later": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "0"); w.WriteHeader(429) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := &shop{down: down, orders: map[string]int{}}
			server := httptest.NewServer(orders)
			defer server.Close()
			observed := &observer{}
			client := &http.Client{Transport: &idemclient.Transport{
				Base: server.Client().Transport, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
				AttemptTimeout: -1, MaxElapsed: -1, Observe: observed.observe,
			}}
			keys := make([]string, 200)
			for i := range keys {
				keys[i] = idemclient.NewKey()
			}
			failed := placeAll(t, client, server.URL, keys)
			t.Logf("200 calls during the outage: %d requests, amplification %.3f", orders.count(), float64(orders.count())/200)
			if failed != 200 || orders.count() > 240 || orders.count() < 210 {
				t.Errorf("%d failed, %d requests; want 200, and between 210 and 240", failed, orders.count())
			}
			if last := observed.last(t); last.Stop != idemclient.StopBudget {
				t.Errorf("the last call stopped because of %q, want the budget", last.Stop)
			}

			orders.set(nil)
			if failed = placeAll(t, client, server.URL, keys); failed != 0 {
				t.Errorf("%d of the calls failed after the recovery", failed)
			}
			for _, key := range keys {
				if orders.orders[`"`+key+`"`] != 1 {
					t.Fatalf("%d orders for a key, want 1", orders.orders[`"`+key+`"`])
				}
			}
		})
	}
}

// placeAll calls for every key, ten at a time, and returns how many had no good answer.
func placeAll(t *testing.T, client *http.Client, url string, keys []string) (failed int) {
	var group sync.WaitGroup
	var failures atomic.Int64
	work := make(chan *http.Request)
	for range 10 {
		group.Go(func() {
			for req := range work {
				resp, err := client.Do(req)
				if err != nil || resp.StatusCode != http.StatusCreated {
					failures.Add(1)
				}
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	for _, key := range keys {
		work <- post(t, idemclient.WithKey(t.Context(), key), url)
	}
	close(work)
	group.Wait()
	return int(failures.Load())
}

func TestBudget_IsRatioPlusBurst(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		ratio float64
		burst int
		calls int
		want  int // retries; what the first request adds is lost on a full bucket
	}{
		{"default", 0, 0, 1000, 109},
		{"of a single call", 0, 0, 1, 4},
		{"none but the burst", -1, 7, 1000, 7},
		{"the least burst", -1, -1, 1000, 1},
		{"a fifth", 0.2, 5, 1000, 204},
		{"as many as you like", 100, 100, 1000, 4000},
	} {
		bubble(t, row.name, func(t *testing.T) {
			server := &script{answers: []answer{status(503)}}
			transport := &idemclient.Transport{Base: server, RetryRatio: row.ratio, RetryBurst: row.burst}
			for range row.calls {
				call(t, transport.RoundTrip, post(t, t.Context(), somewhere))
			}
			if retries := len(server.requests()) - row.calls; retries != row.want {
				t.Errorf("%d retries for %d calls, want %d", retries, row.calls, row.want)
			}
		})
	}
}

// net/http repeats a request without a body on a reused connection. Each repetition takes a token.
func TestBudget_CountsRepetitionsByNetHTTP(t *testing.T) {
	t.Parallel()
	orders := &shop{down: flapping(), orders: map[string]int{}}
	server := httptest.NewServer(orders)
	defer server.Close()
	observed := &observer{}
	client := &http.Client{Transport: &idemclient.Transport{
		Base: server.Client().Transport, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		AttemptTimeout: -1, MaxElapsed: -1, Observe: observed.observe,
	}}
	for range 50 {
		resp, err := client.Do(request(t, t.Context(), http.MethodPost, server.URL, nil))
		if err != nil {
			continue
		}
		finish(t, resp)
	}
	sent, replays := 0, 0
	for _, attempt := range observed.all() {
		sent += attempt.Sent
		replays += attempt.Sent - 1
	}
	if sent != orders.count() || replays == 0 {
		t.Errorf("%d requests were told, %d of them repeated by net/http, and %d arrived", sent, replays, orders.count())
	}
	if own := len(observed.all()) - 50; own > 10 { // without those of net/http there would be 14
		t.Errorf("%d retries beside %d that net/http made", own, replays)
	}
}

// A request with a key has no GetBody, so net/http cannot repeat it.
func TestTransport_NetHTTPDoesNotRepeatAWriteWithABody(t *testing.T) {
	t.Parallel()
	orders := &shop{down: flapping(), orders: map[string]int{}}
	server := httptest.NewServer(orders)
	defer server.Close()
	transport := &idemclient.Transport{Base: server.Client().Transport, MaxAttempts: 1, AttemptTimeout: -1}
	for i := range 20 {
		req := request(t, t.Context(), http.MethodPost, server.URL, strings.NewReader(order))
		if i%2 == 0 {
			req.Header.Set("Idempotency-Key", "of-the-caller")
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			finish(t, resp)
		}
	}
	if orders.count() != 20 {
		t.Errorf("%d requests for 20 attempts", orders.count())
	}
}
