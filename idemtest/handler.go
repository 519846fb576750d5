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

// HandlerSuite says how a handler is tried. New, Request and Effects are required.
type HandlerSuite struct {
	// New makes the handler, on a database from Pool, with what it needs in there. It is called for every trial anew, some
	// dozens of times, and may share nothing between them; t ends with the trial.
	New func(t testing.TB) (http.Handler, *pgxpool.Pool)

	// Request returns a request that succeeds and has an effect: always the same, key included.
	Request func() *http.Request

	// Other returns a request with the same key and another payload, which is to be refused. Without it that is not tried.
	Other func() *http.Request

	// Stranger returns a request with the same key and payload from another principal, which is to succeed with an effect of
	// its own. Without it that is not tried.
	Stranger func() *http.Request

	// Next returns a request with another key, which is to succeed with an effect of its own. Without it Request is sent with
	// its field Idempotency-Key changed, if there is one, and that must not be taken for a duplicate.
	Next func() *http.Request

	// Effects counts the effects that there are by now: rows, and calls of the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience is for how long a retry may go unanswered after a failure. The default is 30 seconds.
	Patience time.Duration

	// Within is how long behind the first attempt the last one may come. The default is an hour.
	Within time.Duration
}

// Handler holds an HTTP handler to what idem promises, under duplicates and failures of every kind. What is broken it reports by
// t.Errorf, each promise once, with what has happened and how to mend it; docs/testing-reference.md explains them all.
func Handler(t testing.TB, s HandlerSuite) {
	t.Helper()
	if s.New == nil || s.Request == nil || s.Effects == nil {
		t.Fatal("idemtest: New, Request and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	if !u.sameRequests(s.Request) {
		return
	}
	u.open = func(sc *scene) *subject {
		handler, pool := s.New(sc)
		subject := &subject{
			pool: pool, proxy: proxyOf(sc, pool), memory: recordsSQL,
			request:  serve(handler, s.Request),
			echo:     serve(handler, func() *http.Request { return hopped(s.Request()) }),
			other:    serve(handler, s.Other),
			stranger: serve(handler, s.Stranger),
			next:     serve(handler, s.Next),
			sibling:  serve(handler, s.sibling()),
			plain:    [2]ask{serve(handler, s.under(plainKeys[0])), serve(handler, s.under(plainKeys[1]))},
			effects:  func(ctx context.Context) (int, error) { return s.Effects(ctx, pool) },
		}
		return subject
	}
	u.run()
}

// sameRequests compares two requests.
func (u *suite) sameRequests(request func() *http.Request) bool {
	u.Helper()
	one, two := spelled(request()), spelled(request())
	if one != two {
		u.breaks(sameRequest, "two of them differ:\n%s\n%s", one, two)
	}
	return one == two
}

func spelled(r *http.Request) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", r.Method, r.URL)
	r.Header.Write(&text)
	body, _ := bodyOf(r)
	return text.String() + string(body)
}

func bodyOf(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// hopped is a request as it may look when it is sent again: nothing in it that matters is another.
func hopped(r *http.Request) *http.Request {
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
	r.TransferEncoding = []string{"chunked"} // see arrived
	return r
}

// sibling returns Request with another key in its header, or nil if Next says what that is, or there is no key to change.
func (s HandlerSuite) sibling() func() *http.Request {
	key := s.Request().Header.Get("Idempotency-Key")
	last := strings.LastIndexFunc(key, func(r rune) bool { return r < unicode.MaxASCII && (unicode.IsDigit(r) || unicode.IsLetter(r)) })
	if s.Next != nil || last < 0 {
		return nil
	}
	other := byte('1') // a digit of a UUID as well
	if key[last] == other {
		other = '2'
	}
	return s.under(key[:last] + string(other) + key[last+1:])
}

// under returns Request under another key.
func (s HandlerSuite) under(key string) func() *http.Request {
	return func() *http.Request {
		r := s.Request()
		r.Header.Set("Idempotency-Key", key)
		return r
	}
}

// serve has a handler answer a request, as a server would.
func serve(handler http.Handler, request func() *http.Request) ask {
	if request == nil {
		return nil
	}
	return func(ctx context.Context) answer {
		r := arrived(ctx, request())
		w := httptest.NewRecorder()
		if reason := recovered(func() { handler.ServeHTTP(w, r) }); reason != nil {
			return answer{fate: again, brief: fmt.Sprintf("by a panic (%v)", reason)}
		}
		return answerOf(w.Result())
	}
}

// arrived is a request as a server hands it to a handler.
func arrived(ctx context.Context, r *http.Request) *http.Request {
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

// compared are the header fields that a replay has to repeat, where there are any.
var compared = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag"}

func answerOf(response *http.Response) answer {
	body, _ := io.ReadAll(response.Body)
	text := fmt.Sprintf("%d\n", response.StatusCode)
	for _, name := range compared {
		text += fmt.Sprintf("%s: %q\n", name, response.Header.Values(name))
	}
	brief := fmt.Sprintf("%d %.60q", response.StatusCode, body)
	if replayed(response) {
		brief += " (replayed)"
	}
	a := answer{fate: fateOf(response, body), text: text + string(body), empty: len(body) == 0, brief: brief, fields: response.Header}
	var problem struct{ Type string }
	if json.Unmarshal(body, &problem) == nil && problem.Type == idemhttp.TypeBrokenTx {
		a.fate, a.err, a.brief = refused, errBrokenTx, fmt.Sprintf("%d with the problem %s", response.StatusCode, problem.Type)
	}
	return a
}

func replayed(response *http.Response) bool {
	return response.Header.Get("Idempotency-Replayed") == "true" || response.Header.Get("Idempotent-Replayed") == "true"
}

// fateOf is what a client makes of an answer: see package idemclient.
func fateOf(response *http.Response, body []byte) fate {
	retryable := bytes.Contains(body, []byte(`"retryable":true`)) || bytes.Contains(body, []byte(`"retryable": true`))
	switch status := response.StatusCode; {
	case status == http.StatusAccepted && response.Header.Get("Location") != "" && bytes.Contains(body, []byte(`"operation_id":`)):
		return again // the operation of idemhttp.Operate is in progress
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
