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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

const keyField = "Idempotency-Key"

// What is sent, and what is read, at most.
const (
	MaxRequests = 200
	MaxAtOnce   = 64
	maxBody     = 1 << 20
	shownBody   = 300
)

// Exchange is a request and its answer, as they are shown.
type Exchange struct {
	Key     []string            `json:"key"` // as it was sent; none if there was none
	Request string              `json:"request"`
	As      string              `json:"as,omitempty"` // whose credential it had, if not the first one's
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    string              `json:"body,omitempty"`
	Error   string              `json:"error,omitempty"`
}

// answer is what came of a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
	exact  bool // the body counts by its bytes
	shown  Exchange
}

func (a *answer) ok() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// same reports whether two answers say the same. JSON counts by what it says, unless the profile has it by its bytes.
func (a *answer) same(b *answer) bool {
	if a.err != nil || b.err != nil || a.status != b.status {
		return false
	}
	if bytes.Equal(a.body, b.body) || a.exact {
		return bytes.Equal(a.body, b.body)
	}
	one, err := idem.HashJSON(a.body)
	if err != nil {
		return false
	}
	other, err := idem.HashJSON(b.body)
	return err == nil && one == other
}

// isMarked reports whether a server says that an answer is a replay.
func (a *answer) isMarked() bool {
	return a.err == nil && (a.header.Get("Idempotency-Replayed") == "true" || a.header.Get("Idempotent-Replayed") == "true")
}

// client sends requests to one URL.
type client struct {
	http    *http.Client
	url     *url.URL
	request *Request
	first   http.Header    // the credential
	other   http.Header    // another principal's
	secrets *regexp.Regexp // nil if there is no credential
	timeout time.Duration
	exact   bool
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	sent int
}

func newClient(o *Options) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = MaxAtOnce, MaxAtOnce
	c := &client{
		http:    &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		url:     o.URL,
		request: o.Request, first: o.Credential, other: o.Other, timeout: o.Timeout, exact: o.Profile.exact,
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

// sending is one request.
type sending struct {
	keys    []string // the fields that are sent
	body    string
	asOther bool
	cut     bool // the connection is cut once the request is sent
}

var errEnded = errors.New("the connection ended ahead of an answer")

func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// errCut is how a request ends whose connection is cut on purpose.
var errCut = errors.New("the connection was cut, as was meant")

var errLimit = fmt.Errorf("more than %d requests would be needed", MaxRequests)

func (c *client) send(ctx context.Context, s sending) *answer {
	a := &answer{exact: c.exact, shown: Exchange{Key: s.keys, Request: c.shorten(s.body)}}
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

// count bounds what is sent.
func (c *client) count() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent++; c.sent > MaxRequests {
		return errLimit
	}
	return nil
}

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
		GotFirstResponseByte: func() { bodyAgain.Store(true) }, // it may be a redirect, for which net/http asks for the body before it is refused
	}
	if s.cut {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) {
			if isHTTP2(conn) { // it has left the buffers
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
	// net/http sends a request with a key again by itself. Over HTTP/2 it does so only where the server has said that it has not processed the
	// request, as by REFUSED_STREAM.
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
		return errors.Unwrap(err) // without the URL
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	return err
}

// shorten makes something fit to be shown. A credential is hidden before the end is cut off, which would leave a part of it.
func (c *client) shorten(text string) string {
	text = c.hide(text)
	if len(text) > shownBody {
		text = text[:shownBody] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// hide replaces credentials, which a server may have echoed.
func (c *client) hide(text string) string {
	if c.secrets == nil {
		return text
	}
	return c.secrets.ReplaceAllString(text, "[credential]")
}
