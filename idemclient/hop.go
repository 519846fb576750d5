package idemclient

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/keyheader"
)

// hop is one RoundTrip of a call: its first request, or one that a redirect has led to.
type hop struct {
	*Transport
	call     *call
	key      callKey       // that this hop sends: the call's, unless the redirect has left that behind
	request  *http.Request // as every attempt sends it, but for its body and its number
	body     body
	nextBody io.ReadCloser // of the next attempt
	repeat   bool          // the request may be sent more than once
	attempts int
}

// begin prepares a hop.
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

// bodyOf leaves the body alone if nothing is to be gained.
func (h *hop) bodyOf(req *http.Request) (body, error) {
	if !h.repeat || h.maxAttempts() <= 1 {
		return body{first: req.Body}, nil
	}
	return bodyOf(req, h.maxBuffer())
}

// prepare returns a request like the caller's, which stays as it is, with the key or, where none is sent, without.
func (h *hop) prepare(req *http.Request) *http.Request {
	prepared := req.WithContext(context.WithValue(req.Context(), inCall{}, h.call))
	if h.key.value != "" {
		h.addKey(prepared)
	} else {
		h.removeKey(prepared)
	}
	return prepared
}

// addKey writes the key, unless the caller has. Without its GetBody net/http cannot repeat the request where no attempt is counted,
// which it does with one that has an Idempotency-Key.
func (h *hop) addKey(req *http.Request) {
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	if _, written := req.Header[h.keyHeader()]; !written {
		req.Header.Set(h.keyHeader(), h.key.value)
	}
	req.GetBody = nil
}

// header is that of the attempt that is due. If the key was sent before, it has the number of the attempt, in a copy,
// because base may still look at the header of the last attempt.
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
		case h.tooOld(0): // the machine was asleep meanwhile
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

// end returns what the last attempt has brought.
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

// giveUp is the error of a call that ended in the pause after a.
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
