package idemclient_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// answer is the reaction of a script to one request.
type answer func(*http.Request) (*http.Response, error)

// script is a server in memory. It gives its answers in turn, and repeats the last one.
type script struct {
	mu       sync.Mutex
	answers  []answer
	received []received
}

// received is a request as it arrived.
type received struct {
	Method string
	Keys   []string
	Body   string
	At     time.Time
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	got := received{Method: req.Method, Keys: append([]string(nil), req.Header.Values("Idempotency-Key")...), At: time.Now()}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		got.Body = string(body)
	}
	s.mu.Lock()
	s.received = append(s.received, got)
	next := s.answers[min(len(s.received), len(s.answers))-1]
	s.mu.Unlock()
	resp, err := next(req)
	if resp != nil && resp.Request == nil {
		resp.Request = req
	}
	return resp, err
}

func (s *script) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// gaps are the pauses between the requests.
func (s *script) gaps() []time.Duration {
	requests := s.requests()
	var gaps []time.Duration
	for i := 1; i < len(requests); i++ {
		gaps = append(gaps, requests[i].At.Sub(requests[i-1].At))
	}
	return gaps
}

// status answers with a status, and headers as pairs of name and value.
func status(code int, headers ...string) answer { return document(code, "", "", headers...) }

func document(code int, contentType, body string, headers ...string) answer {
	return func(*http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}
		if contentType != "" {
			resp.Header.Set("Content-Type", contentType)
		}
		for i := 0; i < len(headers); i += 2 {
			resp.Header.Add(headers[i], headers[i+1])
		}
		return resp, nil
	}
}

func problem(code int, body string, headers ...string) answer {
	return document(code, "application/problem+json", body, headers...)
}

func failure(err error) answer {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// never answers when the attempt's context ends.
func never(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// observer keeps what a Transport observes.
type observer struct {
	mu       sync.Mutex
	attempts []idemclient.Attempt
}

func (o *observer) observe(_ context.Context, attempt idemclient.Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, attempt)
}

func (o *observer) all() []idemclient.Attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.attempts)
}

func (o *observer) last(t *testing.T) idemclient.Attempt {
	t.Helper()
	attempts := o.all()
	if len(attempts) == 0 {
		t.Fatal("no attempt was observed")
	}
	return attempts[len(attempts)-1]
}

// post returns a request as most are: with a body that net/http can rewind.
func post(t *testing.T, ctx context.Context, url string) *http.Request {
	t.Helper()
	return request(t, ctx, http.MethodPost, url, strings.NewReader(order))
}

const order = `{"sku":"teapot","quantity":2}`

func request(t *testing.T, ctx context.Context, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// bubble runs a parallel subtest in a synctest bubble.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// call sends a request and reads the response, whose body can be read again.
func call(t *testing.T, send func(*http.Request) (*http.Response, error), req *http.Request) *http.Response {
	t.Helper()
	resp, err := send(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(strings.NewReader(finish(t, resp)))
	return resp
}

// finish reads and closes a response, and returns its body.
func finish(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const somewhere = "http://orders.example/orders"
