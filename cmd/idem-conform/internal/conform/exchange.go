package conform

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

const keyField = "Idempotency-Key"

// Limits of a run. Bodies are read up to maxBody bytes. Their first hiddenBody bytes are searched
// for credentials, and up to shownBody bytes are reported.
const (
	MaxRequests = 200
	MaxAtOnce   = 64
	maxBody     = 1 << 20
	hiddenBody  = 16 << 10
	shownBody   = 300
)

// Exchange is a request and its answer as a Result reports them, without credentials.
type Exchange struct {
	Key     []string            `json:"key"` // the values of the Idempotency-Key fields that were sent
	Request string              `json:"request"`
	As      string              `json:"as,omitempty"` // whose credential was sent; empty for the first principal
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    string              `json:"body,omitempty"`
	Error   string              `json:"error,omitempty"`
}

// String describes the exchange in one line.
func (e Exchange) String() string {
	key := "no key"
	if len(e.Key) > 0 {
		key = "key " + strings.Join(e.Key, " and ")
		if len(key) > 60 {
			key = key[:60] + "…"
		}
	}
	if e.As != "" {
		key += ", " + e.As
	}
	if e.Error != "" {
		return fmt.Sprintf("%s: %s → %s", key, e.Request, e.Error)
	}
	return fmt.Sprintf("%s: %s → %d %s", key, e.Request, e.Status, e.Body)
}

// answer is the response to a request, or the error.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
	equals func(a, b *answer) bool // Profile.same
	shown  Exchange
}

func (a *answer) ok() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// same reports whether the profile counts two answers as the answer of one execution.
func (a *answer) same(b *answer) bool { return a.err == nil && b.err == nil && a.equals(a, b) }

// sameBytes reports whether two answers have the same status and the same bytes.
func sameBytes(a, b *answer) bool { return a.status == b.status && bytes.Equal(a.body, b.body) }

// sameMeaning is like sameBytes, but compares two JSON bodies by their values.
func sameMeaning(a, b *answer) bool {
	return sameBytes(a, b) || a.status == b.status && sameJSONValue(a.body, b.body)
}

// sameObject reports whether two successful answers have the same JSON member id. It compares other
// answers with sameMeaning.
func sameObject(a, b *answer) bool {
	x, y := memberID(a.body), memberID(b.body)
	if a.ok() && b.ok() && x != nil && y != nil {
		return equal(x, y)
	}
	return sameMeaning(a, b)
}

// isMarked reports whether the server marked the answer as a replay.
func (a *answer) isMarked() bool {
	return a.err == nil && (a.header.Get("Idempotency-Replayed") == "true" || a.header.Get("Idempotent-Replayed") == "true")
}

// client sends requests to one URL and counts them.
type client struct {
	http    *http.Client
	url     *url.URL
	request *Request
	first   http.Header    // the credential of the first principal
	other   http.Header    // the credential of another principal; may be nil
	secrets *regexp.Regexp // matches credentials in texts; nil if the run has no credentials
	timeout time.Duration
	equals  func(a, b *answer) bool
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	sent int
}

// newClient returns a client that can close its connections after a request was sent. It does not
// follow redirects.
func newClient(o *Options) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = MaxAtOnce, MaxAtOnce
	c := &client{
		http:    &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		url:     o.URL,
		request: o.Request, first: o.Credential, other: o.Other, timeout: o.Timeout, equals: o.Profile.same,
		secrets: secretPattern(o.URL, o.Credential, o.Other), dial: transport.DialContext,
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: conn}, nil
	}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// sending is a request to be sent.
type sending struct {
	keys    []string // the values of Idempotency-Key fields
	body    string
	asOther bool
	cut     bool // close the connection once the request is sent
}

// errEnded is the error of a request whose connection ended before an answer. The client does not
// retry the request by itself, because the rules would not know of that repetition.
var errEnded = errors.New("the connection ended before an answer")

func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// errCut is the error of a request whose connection the client closed on purpose.
var errCut = errors.New("the client closed the connection on purpose")

var errLimit = fmt.Errorf("the run needs more than %d requests", MaxRequests)

// send sends a request and returns the answer, together with the Exchange that is reported. The
// answer has an error if the run has sent MaxRequests already.
func (c *client) send(ctx context.Context, s sending) *answer {
	a := &answer{equals: c.equals, shown: Exchange{Key: s.keys, Request: c.shorten(s.body)}}
	if s.asOther {
		a.shown.As = "another principal"
	}
	if a.err = c.count(); a.err == nil {
		a.err = c.exchange(ctx, s, a)
	}
	if a.err != nil {
		a.shown.Error = c.hide(a.err.Error())
		return a
	}
	a.shown.Status, a.shown.Body, a.shown.Header = a.status, c.shorten(string(a.body)), map[string][]string{}
	for _, name := range []string{keyField, "Idempotency-Replayed", "Idempotent-Replayed", "Content-Type", "Retry-After", "Link", "Location"} {
		for _, value := range a.header.Values(name) {
			a.shown.Header[name] = append(a.shown.Header[name], c.shorten(value))
		}
	}
	return a
}

// count counts a request, and fails if the run has sent MaxRequests already.
func (c *client) count() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent++; c.sent > MaxRequests {
		return errLimit
	}
	return nil
}

// exchange sends a request and reads the response into a.
//
// Each request must reach the server exactly once, or the run would misjudge the answers. Two
// properties of net/http are in the way. First, it retries requests with an Idempotency-Key on its
// own; GetBody prevents that. Second, it reports an HTTP/1 request as written while a part is still
// in a buffer. If s.cut is set, the connection is therefore closed only after the next write.
func (c *client) exchange(ctx context.Context, s sending, a *answer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	var bodyAgain atomic.Bool
	var conn net.Conn
	trace := httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			conn = got.Conn
			bodyAgain.Store(isHTTP2(conn))
		},
		// If the answer is a redirect, net/http calls GetBody before CheckRedirect refuses to
		// follow the redirect. So GetBody must not fail from here on.
		GotFirstResponseByte: func() { bodyAgain.Store(true) },
	}
	if s.cut {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) {
			if isHTTP2(conn) { // over HTTP/2 the request has been sent
				cancel()
			} else {
				cutAfterWrite(conn, cancel)
			}
		}
	}
	ctx = httptrace.WithClientTrace(ctx, &trace)
	req, err := http.NewRequestWithContext(ctx, c.request.Method, c.url.String(), strings.NewReader(s.body))
	if err != nil {
		return err
	}
	credential := c.first
	if s.asOther {
		credential = c.other
	}
	for _, header := range []http.Header{c.request.Header, credential} {
		for name, values := range header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if len(s.keys) > 0 {
		req.Header[keyField] = s.keys
	}
	// GetBody fails, so that net/http cannot retry the request. Over HTTP/2 it does not fail:
	// net/http only retries if the server has reported that it did not process the request, for
	// example by REFUSED_STREAM. Such a retry is harmless.
	req.GetBody = func() (io.ReadCloser, error) {
		if bodyAgain.Load() {
			return io.NopCloser(strings.NewReader(s.body)), nil
		}
		return nil, errEnded
	}
	response, err := c.http.Do(req)
	if err != nil {
		if s.cut {
			return errCut
		}
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return errors.Unwrap(err) // without the URL, which may contain a password
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	return err
}

// shorten returns text without credentials, cut to shownBody bytes. It hides credentials before it
// cuts the text, because the patterns would not match a credential that was cut in two.
func (c *client) shorten(text string) string {
	isLong := len(text) > hiddenBody
	if isLong { // matching the patterns takes long in a long text
		text = text[:hiddenBody]
	}
	text = c.hide(text)
	if isLong && len(text) < hiddenBody/2 {
		return "…" // nearly all of the text was credentials, and the cut may have left a part of a credential
	}
	if len(text) > shownBody {
		text = text[:shownBody] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Printable escapes the characters of text that could control a terminal.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// hide replaces credentials in text, because a server may have echoed them.
func (c *client) hide(text string) string {
	if c.secrets == nil {
		return text
	}
	return c.secrets.ReplaceAllString(text, "[credential]")
}
