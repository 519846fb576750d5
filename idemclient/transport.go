package idemclient

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Transport is an http.RoundTripper that sends a write under one Idempotency-Key until it has an answer, and retries within
// limits. The zero value works. A Transport is safe for concurrent use, and all who use it share its retry budget. It must
// not be copied after its first use, nor its fields changed.
type Transport struct {
	// Base makes the attempts. The default is http.DefaultTransport.
	Base http.RoundTripper

	// KeyHeader is the name of the header that carries the key. The default is Idempotency-Key.
	KeyHeader string

	// BareKey sends keys as they are. The default is a string in quotes, as the IETF's draft and RFC 9651 have it. A key that
	// the caller has put into the header is sent as it was written, in either case.
	BareKey bool

	// Methods are those for which a key is made if the caller has not given one. The default is POST and PATCH. GET, HEAD,
	// OPTIONS, TRACE, PUT and DELETE can be repeated without. An empty slice that is not nil makes no keys.
	Methods []string

	// KeyOnRedirect says whether a redirect to next takes the key along; first is the URL of the call's first request. The
	// default is net/http's rule for Authorization: it does if the host of next is that of first or a subdomain of it.
	// Allow other hosts only if they know the keys of the first: otherwise the same key may have its effect on each of
	// them. Once a redirect has left the key behind, no later one of the call brings it back.
	KeyOnRedirect func(first, next *url.URL) bool

	// Retention is for how long the server has promised to remember a key. A key that is older is not sent: what it stands
	// for might be executed again. The default is 24 hours; a negative one is no limit. An attempt takes time to arrive:
	// choose somewhat less than the server's figure if that is short.
	Retention time.Duration

	// MaxAttempts bounds how often one request is sent, the first attempt included. The default is 5; 1 never retries.
	MaxAttempts int

	// MaxElapsed bounds, from when the call began, when a last attempt may begin. It does not cut an attempt short: the
	// context does. The default is 2 minutes; a negative one is no limit.
	MaxElapsed time.Duration

	// AttemptTimeout bounds one attempt until the header of its response is there, the time to send the body included, and
	// the problem document of a response that may call for a retry. It does not bound how long the caller reads the response,
	// and not a request that would not be retried anyway. The default is 30 seconds; a negative one is no limit.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff shape the pause before retry n, counted from 0: a random time between 0 and
	// min(MaxBackoff, MinBackoff·2ⁿ). The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	// MaxRetryAfter bounds how much of a Retry-After is waited for. The default is a minute; a negative one ignores the header.
	MaxRetryAfter time.Duration

	// MaxBuffer bounds the body, in bytes, that is kept in memory because its request has no GetBody. A larger one is sent
	// once and never again. The default is 1 MiB; a negative one keeps none, which suits a body that is written only while
	// the response is being read.
	MaxBuffer int64

	// RetryRatio bounds retries to a share of the requests. The default is 0.1; a negative one allows those of RetryBurst
	// and no more.
	RetryRatio float64

	// RetryBurst is how many retries may be made before RetryRatio begins to bound them, and how many a quiet time can save
	// up. The default is 10; it is never less than 1.
	RetryBurst int

	// Observe, if it is set, is told of every attempt as soon as its outcome is known, before a pause. It is called in the
	// goroutine of the call and must be quick.
	Observe func(ctx context.Context, attempt Attempt)

	budget budget
}

// NewClient returns an http.Client on a Transport with its defaults, which makes its attempts with base. A base of nil is
// http.DefaultTransport.
func NewClient(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &Transport{Base: base}}
}

// RoundTrip sends the request until its answer is final or there is a reason to stop. If the last attempt had a response,
// RoundTrip returns that, with its header and its body as the server sent them; LastAttempt tells why there was no further
// attempt. Otherwise the error is an *Error. If the call has a key, an error of reading the body is an *Error as well.
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

// CloseIdleConnections closes those of Base, if it has any. http.Client calls it.
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

func (t *Transport) retention() time.Duration {
	return limit(t.Retention, 24*time.Hour)
}

func (t *Transport) maxAttempts() int {
	return cmp.Or(t.MaxAttempts, 5)
}

func (t *Transport) maxElapsed() time.Duration {
	return limit(t.MaxElapsed, 2*time.Minute)
}

func (t *Transport) attemptTimeout() time.Duration {
	return limit(t.AttemptTimeout, 30*time.Second)
}

func (t *Transport) maxBuffer() int64 {
	return cmp.Or(t.MaxBuffer, 1<<20)
}

func (t *Transport) retryRatio() float64 {
	return cmp.Or(t.RetryRatio, 0.1)
}

func (t *Transport) retryBurst() int {
	return max(cmp.Or(t.RetryBurst, 10), 1)
}

const unlimited time.Duration = 1<<63 - 1

func limit(set, standard time.Duration) time.Duration {
	if set < 0 {
		return unlimited
	}
	return cmp.Or(set, standard)
}
