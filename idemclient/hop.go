package idemclient

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/keyheader"
)

// hop is one RoundTrip of a call: for the first request, or for the request after a redirect.
type hop struct {
	*Transport
	call     *call
	key      callKey       // the key that this hop sends; empty if a redirect has dropped the key
	request  *http.Request // every attempt sends a copy with its own body and number
	body     body
	nextBody io.ReadCloser // the body of the next attempt
	repeat   bool          // the request may be sent more than once
	attempts int
}

// begin prepares a hop. It returns an *Error if the request cannot be sent.
func (t *Transport) begin(req *http.Request) (*hop, error) {
	c := t.callFor(req)
	key, err := t.key(req, c)
	if err != nil {
		return nil, &Error{Stop: StopInvalidKey, Err: err}
	}
	if c.key.value == "" {
		c.key = key
	}
	c.hidden.reveal = func() callKey { return c.key }
	h := &hop{Transport: t, call: c, key: key, request: req, repeat: key.value != "" || key.silent || isIdempotent(req.Method)}
	if h.tooOld(0) {
		return nil, h.failure(StopKeyTooOld, nil)
	}
	if h.body, err = h.bodyOf(req); err != nil {
		if ended := h.ended(); ended != nil {
			return nil, h.failure(StopEnded, ended)
		}
		return nil, h.failure(StopBody, err)
	}
	h.nextBody = h.body.first
	h.request = h.prepare(req)
	t.budget.deposit(t.retryRatio())
	return h, nil
}

// bodyOf returns the body of the request. It does not buffer the body of a request that is sent
// only once.
func (h *hop) bodyOf(req *http.Request) (body, error) {
	if !h.repeat || h.maxAttempts() <= 1 {
		return body{first: req.Body}, nil
	}
	return bodyOf(req, h.maxBuffer())
}

// prepare returns a copy of the request. The header of the copy has the key of the hop, or no key.
func (h *hop) prepare(req *http.Request) *http.Request {
	prepared := req.WithContext(context.WithValue(req.Context(), inCall{}, h.call))
	if h.key.value != "" {
		h.addKey(prepared)
	} else {
		h.removeKey(prepared)
	}
	return prepared
}

// addKey sets the key in the header, unless the caller has set it. It removes GetBody, because
// net/http repeats a request with an Idempotency-Key and a GetBody on its own. Such a repetition
// would not be counted as an attempt.
func (h *hop) addKey(req *http.Request) {
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	if _, written := req.Header[h.keyHeader()]; !written {
		req.Header.Set(h.keyHeader(), h.key.value)
	}
	req.GetBody = nil
}

// header returns the header of the next attempt. If the key was sent before, the header has the
// number of the attempt. That header is a new copy, because Base may still read the header of the
// last attempt.
func (h *hop) header() http.Header {
	number := h.attempts
	if h.key.sentBefore {
		number++
	}
	if number < 2 || h.key.value == "" {
		return h.request.Header
	}
	header := h.request.Header.Clone()
	header.Set(keyheader.Attempt, strconv.Itoa(number))
	return header
}

func (h *hop) run() (*http.Response, error) {
	for {
		h.attempts++
		a := &attempt{call: h.call}
		a.send(h.base(), h.request, h.header(), h.nextBody, h.timeout())
		h.budget.owe(a.sent()-1, h.retryBurst())
		wait, stop := h.nextAttempt(a)
		h.report(a, wait, stop)
		if stop != "" {
			return h.end(a, stop)
		}
		a.discard()
		switch h.sleep(wait); {
		case h.ended() != nil:
			return nil, h.giveUp(StopEnded, a)
		case h.tooOld(0): // the machine may have been suspended during the pause
			return nil, h.giveUp(StopKeyTooOld, a)
		}
	}
}

func (h *hop) report(a *attempt, wait time.Duration, stop Stop) {
	h.call.last = Attempt{
		Method: method(h.request), Host: host(h.request), Key: h.key.abridged(),
		Number: h.attempts, Sent: a.sent(), Err: a.err, Duration: a.took, Wait: wait, Stop: stop, full: &h.call.hidden,
	}
	if a.response != nil {
		h.call.last.Status = a.response.StatusCode
	}
	if h.Observe != nil {
		h.Observe(h.request.Context(), h.call.last)
	}
}

// end returns the result of the last attempt.
func (h *hop) end(a *attempt, stop Stop) (*http.Response, error) {
	if a.err != nil {
		return nil, h.failure(stop, after(h.ended(), a.err))
	}
	resp := a.handOver()
	if callOf(resp) != h.call {
		resp.Request = a.request
	}
	return resp, nil
}

// giveUp returns the error of a call that ended in the pause after the attempt a.
func (h *hop) giveUp(stop Stop, a *attempt) error {
	h.closeNextBody()
	failure := h.failure(stop, after(h.ended(), a.err))
	if a.response != nil {
		failure.Status = a.response.StatusCode
	}
	return failure
}

func (h *hop) failure(stop Stop, err error) *Error {
	return h.call.failure(stop, h.attempts, err)
}

func method(req *http.Request) string {
	return cmp.Or(req.Method, http.MethodGet)
}

// host returns the host to which a request is sent. A nil URL is not an error here, because
// net/http rejects it.
func host(req *http.Request) string {
	if req.URL == nil {
		return req.Host
	}
	return req.URL.Host
}

// isSafe reports whether a method only reads, so that a key has no meaning.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isIdempotent reports whether HTTP defines the method as idempotent.
func isIdempotent(method string) bool {
	return isSafe(method) || method == http.MethodPut || method == http.MethodDelete
}
