package idemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemhttp"
)

// HandlerSuite configures the test suite Handler. The fields New, Request and Effects are required.
type HandlerSuite struct {
	// New calls Pool to create a database, sets up everything in it that the handler needs, and
	// returns a new handler with the pool. The suite calls New once for every trial, some dozens of
	// times. The handlers must not share state. The cleanups of t run at the end of the trial.
	New func(t testing.TB) (http.Handler, *pgxpool.Pool)

	// Request returns a request that succeeds and has an effect. It must return the same request
	// each time, key included.
	Request func() *http.Request

	// Other returns a request with the same key and another payload. The handler must refuse this
	// request. If Other is nil, the suite skips the trial of a changed payload.
	Other func() *http.Request

	// Stranger returns a request with the same key and payload from another principal. The request
	// must succeed and have its own effect. If Stranger is nil, the suite skips the trials of a
	// second principal.
	Stranger func() *http.Request

	// Next returns a request with another key. The request must succeed and have its own effect. If
	// Next is nil, the suite sends Request with a changed Idempotency-Key header, if Request has
	// this header. The handler must not treat the changed request as a duplicate.
	Next func() *http.Request

	// Effects returns the number of effects so far. It counts the rows that the handler wrote to
	// the database and the calls that it made to the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience is how long the suite retries after a fault before it reports that no retry got an
	// answer. The default is 30 seconds.
	Patience time.Duration

	// Within is how long after the first attempt a client may still retry. A retry that late must
	// not be executed again. The default is one hour.
	Within time.Duration
}

// Handler tests that an HTTP handler keeps the promises of idem. It sends duplicates and injects
// all faults. It reports each broken promise once, by t.Errorf. The report says what happened and
// how to fix the handler. docs/testing-reference.md explains every promise.
func Handler(t testing.TB, s HandlerSuite) {
	t.Helper()
	if s.New == nil || s.Request == nil || s.Effects == nil {
		t.Fatal("idemtest: New, Request and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	if !u.sameRequests(s.Request) {
		return
	}
	u.open = func(sc *trialTB) *subject {
		handler, pool := s.New(sc)
		subject := &subject{
			pool: pool, proxy: proxyOf(sc, pool), countSQL: recordsSQL,
			request:    serve(handler, s.Request),
			resent:     serve(handler, func() *http.Request { return asResent(s.Request()) }),
			other:      serve(handler, s.Other),
			stranger:   serve(handler, s.Stranger),
			next:       serve(handler, s.Next),
			similarKey: serve(handler, s.similarKey()),
			plain:      [2]ask{serve(handler, s.withKey(plainKeys[0])), serve(handler, s.withKey(plainKeys[1]))},
			effects:    func(ctx context.Context) (int, error) { return s.Effects(ctx, pool) },
		}
		return subject
	}
	u.run()
}

// sameRequests checks that two calls of request return equal requests.
func (u *suite) sameRequests(request func() *http.Request) bool {
	u.Helper()
	one, two := textOf(request()), textOf(request())
	if one != two {
		u.breaks(sameRequest, "two of them differ:\n%s\n%s", one, two)
	}
	return one == two
}

// textOf returns the method, URL, header and body of r as one text, by which requests can be
// compared.
func textOf(r *http.Request) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", r.Method, r.URL)
	r.Header.Write(&text)
	body, _ := bodyOf(r)
	return text.String() + string(body)
}

// bodyOf reads and closes the body of r. The body may be nil.
func bodyOf(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// asResent returns r as a proxy or a second attempt might send it. It changes only parts that must
// not matter for the fingerprint, the hash by which idem recognizes the same request.
func asResent(r *http.Request) *http.Request {
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("User-Agent", "idemtest/2")
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	r.Header.Set("X-Request-Id", "the second attempt")
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	r.Header.Set("X-Real-Ip", "198.51.100.7")
	r.Header.Set("Forwarded", "for=198.51.100.7")
	r.Header.Set("Idempotency-Attempt", "2")
	r.RemoteAddr = "198.51.100.8:4711"
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity")
	}
	r.TransferEncoding = []string{"chunked"} // makes the function received set ContentLength to -1
	return r
}

// similarKey returns a function that returns Request with the last letter or digit of its key
// changed. It returns nil if Next is set, or if Request has no key in its header.
func (s HandlerSuite) similarKey() func() *http.Request {
	key := s.Request().Header.Get("Idempotency-Key")
	last := strings.LastIndexFunc(key, func(r rune) bool { return r < unicode.MaxASCII && (unicode.IsDigit(r) || unicode.IsLetter(r)) })
	if s.Next != nil || last < 0 {
		return nil
	}
	// The new character is a hexadecimal digit, so that a UUID remains a UUID.
	other := byte('1')
	if key[last] == other {
		other = '2'
	}
	return s.withKey(key[:last] + string(other) + key[last+1:])
}

// withKey returns a function that returns Request with key as the Idempotency-Key header.
func (s HandlerSuite) withKey(key string) func() *http.Request {
	return func() *http.Request {
		r := s.Request()
		r.Header.Set("Idempotency-Key", key)
		return r
	}
}

// serve returns a function that passes a request to handler as an HTTP server would, and returns
// the answer. It reports a panic of the handler as a failure that may be retried. If request is
// nil, serve returns nil.
func serve(handler http.Handler, request func() *http.Request) ask {
	if request == nil {
		return nil
	}
	return func(ctx context.Context) answer {
		r := received(ctx, request())
		w := httptest.NewRecorder()
		if reason := recovered(func() { handler.ServeHTTP(w, r) }); reason != nil {
			return answer{outcome: again, brief: fmt.Sprintf("by a panic (%v)", reason)}
		}
		return answerOf(w.Result())
	}
}

// received returns a copy of r with the fields that a server sets: the body, its length,
// RequestURI, Host and RemoteAddr.
func received(ctx context.Context, r *http.Request) *http.Request {
	body, _ := bodyOf(r)
	r = r.Clone(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(r.TransferEncoding) > 0 {
		r.ContentLength = -1
	}
	r.RequestURI = r.URL.RequestURI()
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.RemoteAddr == "" {
		r.RemoteAddr = "192.0.2.1:1234"
	}
	return r
}

// comparedFields lists the header fields that a replayed response must repeat unchanged.
var comparedFields = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag"}

// answerOf converts a response to an answer. Its text contains what a duplicate must receive too:
// the status, the fields in comparedFields and the body.
func answerOf(response *http.Response) answer {
	body, _ := io.ReadAll(response.Body)
	text := fmt.Sprintf("%d\n", response.StatusCode)
	for _, name := range comparedFields {
		text += fmt.Sprintf("%s: %q\n", name, response.Header.Values(name))
	}
	brief := fmt.Sprintf("%d %.60q", response.StatusCode, body)
	if replayed(response) {
		brief += " (replayed)"
	}
	a := answer{outcome: outcomeOf(response, body), text: text + string(body), empty: len(body) == 0, brief: brief, fields: response.Header}
	var problem struct{ Type string }
	if json.Unmarshal(body, &problem) == nil && problem.Type == idemhttp.TypeBrokenTx {
		a.outcome, a.err, a.brief = refused, errBrokenTx, fmt.Sprintf("%d with the problem %s", response.StatusCode, problem.Type)
	}
	return a
}

// replayed reports whether a response says that it is a replay.
func replayed(response *http.Response) bool {
	return response.Header.Get("Idempotency-Replayed") == "true" || response.Header.Get("Idempotent-Replayed") == "true"
}

// outcomeOf classifies a response as a client does (see package idemclient). A replayed failure is
// final, even with a status of 500 or above.
func outcomeOf(response *http.Response, body []byte) outcome {
	retryable := bytes.Contains(body, []byte(`"retryable":true`)) || bytes.Contains(body, []byte(`"retryable": true`))
	switch status := response.StatusCode; {
	case status == http.StatusAccepted && response.Header.Get("Location") != "" && bytes.Contains(body, []byte(`"operation_id":`)):
		return again // an operation that idemhttp.Operate has started is in progress
	case status < 400:
		return done
	case replayed(response):
		return refused
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusTooEarly:
		return again
	case status == http.StatusConflict && (retryable || response.Header.Get("Retry-After") != ""):
		return again
	}
	return refused
}
