package idemclient_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

// keys are those of the requests that arrived.
func (s *script) keys() [][]string {
	var keys [][]string
	for _, r := range s.requests() {
		keys = append(keys, r.Keys)
	}
	return keys
}

func TestKey_OnePerCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{status(503), status(429), failure(&timeoutError{}), status(201), status(503), status(201)}}
		client := idemclient.NewClient(server)
		for range 2 {
			call(t, client.Do, post(t, t.Context(), somewhere))
		}
		keys := server.keys()
		if len(keys) != 6 {
			t.Fatalf("%d requests, want 6", len(keys))
		}
		first, second := keys[0], keys[4]
		want := [][]string{first, first, first, first, second, second}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Errorf("a key changed between attempts (-want +got):\n%s", diff)
		}
		quoted := regexp.MustCompile(`^"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$`)
		for _, key := range [][]string{first, second} {
			if len(key) != 1 || !quoted.MatchString(key[0]) {
				t.Errorf("the key is %q, want one random UUID in quotes", key)
			}
		}
		if first[0] == second[0] {
			t.Error("the key of a call leaked into the next")
		}
	})
}

type timeoutError struct{}

func (*timeoutError) Error() string   { return "timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

func TestTransport_DoesNotModifyTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{status(503), status(200)}}
		req := post(t, t.Context(), somewhere)
		req.Header.Set("Accept", "application/json")
		header, url, body := req.Header.Clone(), *req.URL, req.Body
		resp := call(t, (&idemclient.Transport{Base: server}).RoundTrip, req)
		if diff := cmp.Diff(header, req.Header); diff != "" {
			t.Errorf("the header of the caller's request changed:\n%s", diff)
		}
		if *req.URL != url || req.Body != body || req.GetBody == nil || req.ContentLength != int64(len(order)) || req.Response != nil {
			t.Error("the caller's request changed")
		}
		if resp.Request == req || resp.Request.Header.Get("Idempotency-Key") == "" {
			t.Error("the response does not tell the request, with its key, that was sent")
		}
	})
}

func TestKey_OfTheCaller(t *testing.T) {
	t.Parallel()
	withKey := func(key string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return idemclient.WithKey(ctx, key) }
	}
	for _, row := range []struct {
		name      string
		bare      bool
		keyHeader string
		method    string
		ctx       func(context.Context) context.Context
		header    http.Header
		want      []string // what arrives, twice
	}{
		{name: "in the context", ctx: withKey("order-1"), want: []string{`"order-1"`}},
		{name: "in the context, bare", bare: true, ctx: withKey("order-1"), want: []string{`order-1`}},
		{name: "as long as it may be", ctx: withKey(strings.Repeat("x", 255)), want: []string{`"` + strings.Repeat("x", 255) + `"`}},
		{name: "with quotes and backslashes", ctx: withKey(`a "b" \c`), want: []string{`"a \"b\" \\c"`}},
		{name: "for an idempotent method", method: "PUT", ctx: withKey("order-1"), want: []string{`"order-1"`}},
		{name: "not for a safe method", method: "GET", ctx: withKey("order-1")},
		{name: "none for an idempotent method", method: "PUT"},
		{name: "in the header, quoted", header: http.Header{"Idempotency-Key": {`"order-1"`}}, want: []string{`"order-1"`}},
		{name: "in the header, bare", header: http.Header{"Idempotency-Key": {`order-1`}}, want: []string{`order-1`}},
		{name: "in both: the header goes first", ctx: withKey("other"), header: http.Header{"Idempotency-Key": {`order-1`}}, want: []string{`order-1`}},
		{name: "vouched for without a key", header: http.Header{"Idempotency-Key": {}}},
		{name: "in another header", keyHeader: "x-request-key", ctx: withKey("order-1")},
	} {
		bubble(t, row.name, func(t *testing.T) {
			server := &script{answers: []answer{status(503), func(req *http.Request) (*http.Response, error) {
				if name := row.keyHeader; name != "" && req.Header.Get(name) != `"order-1"` {
					t.Errorf("%s is %q", name, req.Header.Get(name))
				}
				return status(200)(req)
			}}}
			transport := idemclient.Transport{Base: server, BareKey: row.bare, KeyHeader: row.keyHeader}
			ctx := t.Context()
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			if row.method == "" {
				row.method = http.MethodPost
			}
			req := request(t, ctx, row.method, somewhere, nil)
			maps.Copy(req.Header, row.header)
			call(t, transport.RoundTrip, req)
			if diff := cmp.Diff([][]string{row.want, row.want}, server.keys()); diff != "" {
				t.Errorf("the keys that arrived (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKey_InvalidKeyFailsBeforeSending(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, key string
		bare      bool
	}{
		{"empty", "", false},
		{"too long", strings.Repeat("x", 256), false},
		{"line break", "secret\r\nX-Evil: 1", false},
		{"not ASCII", "secret-é", false},
		{"comma, bare", "secret,b", true},
		{"space, bare", "secret b", true},
		{"quote, bare", `secret"b`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := &script{answers: []answer{status(200)}}
			body := &closing{Reader: strings.NewReader(order)}
			req := request(t, idemclient.WithKey(t.Context(), row.key), http.MethodPost, somewhere, body)
			_, err := (&idemclient.Transport{Base: server, BareKey: row.bare}).RoundTrip(req)
			stopped, ok := errors.AsType[*idemclient.Error](err)
			if !ok || stopped.Err == nil || !errors.Is(err, idemclient.ErrInvalidKey) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want ErrInvalidKey that tells what is wrong, and not the key", err)
			}
			req = request(t, idemclient.WithKey(t.Context(), row.key), http.MethodPost, somewhere, nil)
			if _, err = (&idemclient.Transport{Base: server, BareKey: row.bare}).RoundTrip(req); !errors.Is(err, idemclient.ErrInvalidKey) {
				t.Errorf("without a body: error %v", err)
			}
			if len(server.requests()) != 0 || !body.closed {
				t.Errorf("%d requests, body closed: %t; want none, and true", len(server.requests()), body.closed)
			}
		})
	}
}

// expiring makes calls with a key that was made some time ago.
func expiring(t *testing.T, ago time.Duration, server *script, transport *idemclient.Transport, header http.Header) (*http.Response, error) {
	transport.Base = server
	ctx := idemclient.WithKeyMadeAt(t.Context(), "order-2026-11-21", time.Now().Add(-ago).Round(0))
	req := post(t, ctx, somewhere)
	maps.Copy(req.Header, header)
	return transport.RoundTrip(req)
}

func TestKey_OlderThanRetentionIsNotSent(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"in the context": nil,
		"in the header":  {"Idempotency-Key": {`"order-2026-11-21"`}},
	} {
		bubble(t, name, func(t *testing.T) {
			server := &script{answers: []answer{status(200)}}
			const day = 24 * time.Hour
			_, err := expiring(t, day+1, server, &idemclient.Transport{}, header)
			var stopped *idemclient.Error
			if !errors.Is(err, idemclient.ErrKeyTooOld) || !errors.As(err, &stopped) || stopped.Attempts != 0 || stopped.KeyAge != day+1 {
				t.Errorf("error %#v, want ErrKeyTooOld after no attempt", err)
			}
			if len(server.requests()) != 0 {
				t.Error("the key was sent")
			}
			resp, err := expiring(t, day, server, &idemclient.Transport{}, header)
			if err != nil {
				t.Fatalf("a key that is not too old yet: %v", err)
			}
			finish(t, resp)
			resp, err = expiring(t, 1000*time.Hour, server, &idemclient.Transport{Retention: -1}, header)
			if err != nil {
				t.Fatalf("a server that never forgets: %v", err)
			}
			finish(t, resp)
		})
	}
}

func TestKey_RetriesStopBeforeRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, observed := &script{answers: []answer{status(503, "Retry-After", "10")}}, &observer{}
		resp, err := expiring(t, 24*time.Hour-15*time.Second, server, &idemclient.Transport{Observe: observed.observe}, nil)
		if err != nil {
			t.Fatal(err)
		}
		finish(t, resp)
		if sent := len(server.requests()); sent != 2 || resp.StatusCode != 503 || observed.last(t).Stop != idemclient.StopKeyTooOld {
			t.Errorf("%d requests, status %d, stopped because of %q; want the second 503, because the key grew too old",
				sent, resp.StatusCode, observed.last(t).Stop)
		}
		keys := server.keys()
		if !cmp.Equal(keys[0], keys[1]) {
			t.Error("the old key was replaced by a new one")
		}

		server.answers = []answer{failure(&timeoutError{})}
		_, err = expiring(t, 24*time.Hour, server, &idemclient.Transport{Retention: 24*time.Hour + time.Nanosecond}, nil)
		var timeout *timeoutError
		if !errors.Is(err, idemclient.ErrKeyTooOld) || !errors.As(err, &timeout) {
			t.Errorf("error %v, want ErrKeyTooOld and its cause", err)
		}
	})
}

// After a machine was suspended, the monotonic clock is behind the wall clock.
func TestKey_AgeIsTheLargerOfTwoClocks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	made := now
	const seconds = 30 // where the wall clock's seconds begin in the first word of a time.Time with a monotonic reading
	clocks := (*struct {
		wall      uint64
		monotonic int64 // nanoseconds
	})(unsafe.Pointer(&made))
	clocks.wall -= 3600 << seconds
	if monotonic, apart := now.Sub(made), now.Round(0).Sub(made.Round(0)); monotonic != 0 || apart != time.Hour {
		t.Fatalf("the test is wrong: the clocks say %v and %v", monotonic, apart)
	}
	if age := idemclient.KeyAge(made, now); age != time.Hour {
		t.Errorf("asleep for an hour: the age is %v", age)
	}
	clocks.wall += 7200 << seconds
	clocks.monotonic -= int64(30 * time.Minute)
	if age := idemclient.KeyAge(made, now); age != 30*time.Minute {
		t.Errorf("made half an hour ago, then set back by an hour: the age is %v", age)
	}
	if age := idemclient.KeyAge(now.Add(time.Hour).Round(0), now); age != 0 {
		t.Errorf("made by a clock ahead: the age is %v", age)
	}
}

// A pause can last longer than planned, because Observe is slow as here, or because the machine was
// suspended.
func TestKey_TooOldAfterThePauseIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &script{answers: []answer{status(503)}}
		transport := &idemclient.Transport{Base: server, Observe: func(context.Context, idemclient.Attempt) { time.Sleep(25 * time.Hour) }}
		_, err := transport.RoundTrip(post(t, t.Context(), somewhere))
		var stopped *idemclient.Error
		if !errors.Is(err, idemclient.ErrKeyTooOld) || !errors.As(err, &stopped) || stopped.Attempts != 1 || stopped.Status != 503 {
			t.Errorf("error %#v, want ErrKeyTooOld after one attempt with status 503", err)
		}
		if len(server.requests()) != 1 {
			t.Errorf("%d requests", len(server.requests()))
		}
	})
}

// Such a request would be sent without the protection that its caller has asked for.
func TestKey_InvalidHeaderFieldFailsBeforeSending(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]http.Header{
		"empty":                      {"Idempotency-Key": {""}},
		"empty, in quotes":           {"Idempotency-Key": {`""`}},
		"two":                        {"Idempotency-Key": {"a", "b"}},
		"in lower case":              {"idempotency-key": {"a"}},
		"in lower case, and another": {"idempotency-key": {"a"}, "Idempotency-Key": {"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &script{answers: []answer{status(201)}}
			req := post(t, t.Context(), somewhere)
			req.Header = written
			resp, err := idemclient.NewClient(server).Do(req)
			if err == nil {
				finish(t, resp)
				t.Error("it was sent")
			}
			if n := len(server.requests()); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
