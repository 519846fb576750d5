package idemclient

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Transport is an http.RoundTripper that sends a write with one Idempotency-Key until it has an
// answer, and limits the retries. The zero value is ready to use. A Transport is safe for
// concurrent use, and all its users share one retry budget. After its first use, a Transport must
// not be copied and its fields must not be changed.
type Transport struct {
	// Base sends the attempts. The default is http.DefaultTransport.
	Base http.RoundTripper

	// KeyHeader is the name of the header field with the key. The default is Idempotency-Key.
	KeyHeader string

	// BareKey sends keys without quotes. The default is a quoted string, as in the IETF draft and
	// RFC 9651. A key that the caller has written into the header is sent as it is.
	BareKey bool

	// Methods are the methods for which the Transport makes a key if the caller has not given a
	// key. The default is POST and PATCH. GET, HEAD, OPTIONS, TRACE, PUT and DELETE can be repeated
	// without a key. With an empty slice that is not nil, the Transport makes no keys.
	Methods []string

	// KeyOnRedirect reports whether a redirect to the URL next keeps the key. The argument first is
	// the URL of the first request of the call. By default, a redirect keeps the key on the host of
	// the first URL and on its subdomains. Allow another host only if both hosts share the records
	// of keys. Otherwise the write may take effect once on each host. Once a redirect has dropped
	// the key, a later redirect does not bring it back.
	KeyOnRedirect func(first, next *url.URL) bool

	// Retention is how long the server keeps a key. An older key is not sent, because the write
	// might be executed again. The default is 24 hours; a negative Retention is no limit. A request
	// takes time to arrive, so if the retention of the server is short, choose a somewhat shorter
	// time.
	Retention time.Duration

	// MaxAttempts limits how often a request is sent, including the first attempt. The default is
	// 5. With 1 there are no retries.
	MaxAttempts int

	// MaxElapsed limits the time from the start of the call to the start of its last attempt. It
	// does not interrupt an attempt; use the context for that. The default is 2 minutes; a negative
	// value is no limit.
	MaxElapsed time.Duration

	// AttemptTimeout limits one attempt. It covers sending the body, receiving the header of the
	// response, and reading a problem document that may call for a retry. It does not cover the
	// time in which the caller reads the body, and does not apply to a request that cannot be sent
	// again. The default is 30 seconds; a negative value is no limit.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff define the pause before retry n, counted from 0: a random time
	// between 0 and min(MaxBackoff, MinBackoff·2ⁿ). The defaults are 250 milliseconds and 10
	// seconds.
	MinBackoff, MaxBackoff time.Duration

	// MaxRetryAfter is the longest time of a Retry-After that is respected; a longer time is
	// shortened to it. The default is a minute; a negative value ignores the header.
	MaxRetryAfter time.Duration

	// MaxBuffer limits the size of a body, in bytes, that is held in memory because its request has
	// no GetBody. A larger body is sent only once. The default is 1 MiB. With a negative value, no
	// body is buffered. Use this if the program writes the body while it reads the response.
	MaxBuffer int64

	// RetryRatio is the number of retries per request that the budget allows. The default is 0.1.
	// With a negative value, only RetryBurst retries are allowed.
	RetryRatio float64

	// RetryBurst is the size of the retry budget: how many retries are possible at once. The
	// default is 10; the minimum is 1.
	RetryBurst int

	// Observe, if set, is called for every attempt as soon as its result is known, before the
	// pause. It is called in the goroutine of the call and must return quickly.
	Observe func(ctx context.Context, attempt Attempt)

	budget budget
}

// NewClient returns an http.Client with a Transport whose only non-zero field is Base. If base is
// nil, the Transport sends its attempts with http.DefaultTransport.
func NewClient(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &Transport{Base: base}}
}

// RoundTrip sends the request until the answer is final or a limit is reached. If the last attempt
// had a response, RoundTrip returns it, with the header and body that the server sent. LastAttempt
// then says why there was no further attempt. Otherwise the error is an *Error. If the call has a
// key, an error while the body is read is an *Error as well.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	h, err := t.begin(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return h.run()
}

// CloseIdleConnections closes the idle connections of Base. http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) keyHeader() string {
	return http.CanonicalHeaderKey(cmp.Or(t.KeyHeader, "Idempotency-Key"))
}

func (t *Transport) makesKeyFor(method string) bool {
	if t.Methods == nil {
		return method == http.MethodPost || method == http.MethodPatch
	}
	return slices.Contains(t.Methods, method)
}

func (t *Transport) retention() time.Duration      { return limit(t.Retention, 24*time.Hour) }
func (t *Transport) maxAttempts() int              { return cmp.Or(t.MaxAttempts, 5) }
func (t *Transport) maxElapsed() time.Duration     { return limit(t.MaxElapsed, 2*time.Minute) }
func (t *Transport) attemptTimeout() time.Duration { return limit(t.AttemptTimeout, 30*time.Second) }
func (t *Transport) maxBuffer() int64              { return cmp.Or(t.MaxBuffer, 1<<20) }
func (t *Transport) retryRatio() float64           { return cmp.Or(t.RetryRatio, 0.1) }
func (t *Transport) retryBurst() int               { return max(cmp.Or(t.RetryBurst, 10), 1) }

const unlimited time.Duration = 1<<63 - 1

func limit(set, standard time.Duration) time.Duration {
	if set < 0 {
		return unlimited
	}
	return cmp.Or(set, standard)
}
