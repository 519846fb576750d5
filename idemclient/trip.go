package idemclient

import (
	"context"
	"io"
	"net/http"
	"time"
)

// trip is one RoundTrip of a call.
type trip struct {
	*Transport
	call     *call
	request  *http.Request // as every attempt sends it, but for its body
	body     body
	next     io.ReadCloser // the body of the next attempt
	repeat   bool          // the request may be sent more than once
	attempts int
}

// begin prepares a trip. http.Client says by req.Response which response has redirected it here.
func (t *Transport) begin(req *http.Request) (*trip, error) {
	before := callOf(req.Response)
	key, err := t.key(req, before)
	if err != nil {
		return nil, &Error{Stop: StopInvalidKey, Err: err}
	}
	c := &call{key: key, started: time.Now()}
	if before != nil {
		c.started = before.started
	}
	h := &trip{Transport: t, call: c, request: req, repeat: key.value != "" || key.silent || isIdempotent(req.Method)}
	if h.tooOld(0) {
		return nil, h.failure(StopKeyTooOld, nil)
	}
	if h.body, err = h.bodyOf(req); err != nil {
		if ended := h.ended(); ended != nil {
			return nil, h.failure(StopEnded, ended)
		}
		return nil, h.failure(StopBody, err)
	}
	h.next = h.body.first
	h.request = h.prepare(req)
	t.budget.deposit(t.retryRatio())
	return h, nil
}

// bodyOf leaves the body alone if nothing is to be gained.
func (h *trip) bodyOf(req *http.Request) (body, error) {
	if !h.repeat || h.maxAttempts() <= 1 {
		return body{first: req.Body}, nil
	}
	return bodyOf(req, h.maxBuffer())
}

// prepare returns a request like the caller's, which stays as it is, with the key. Without its GetBody net/http cannot
// repeat it where nobody counts, which it does with a request that has an Idempotency-Key.
func (h *trip) prepare(req *http.Request) *http.Request {
	prepared := req.WithContext(context.WithValue(req.Context(), inCall{}, h.call))
	if h.call.key.value == "" {
		return prepared
	}
	if prepared.Header = req.Header.Clone(); prepared.Header == nil {
		prepared.Header = http.Header{}
	}
	if _, written := prepared.Header[h.keyHeader()]; !written {
		prepared.Header.Set(h.keyHeader(), h.call.key.value)
	}
	prepared.GetBody = nil
	return prepared
}

func (h *trip) run() (*http.Response, error) {
	for {
		h.attempts++
		a := &attempt{}
		a.send(h.base(), h.request, h.next, h.timeout())
		h.budget.owe(a.sent()-1, h.retryBurst())
		wait, stop := h.judge(a)
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

func (h *trip) report(a *attempt, wait time.Duration, stop Stop) {
	h.call.last = Attempt{
		Method: method(h.request), Host: host(h.request), Key: h.call.key.abridged(),
		Number: h.attempts, Sent: a.sent(), Err: a.err, Duration: a.took, Wait: wait, Stop: stop,
	}
	if a.response != nil {
		h.call.last.Status = a.response.StatusCode
	}
	if h.Observe != nil {
		h.Observe(h.request.Context(), h.call.last)
	}
}

// end returns what the last attempt has brought.
func (h *trip) end(a *attempt, stop Stop) (*http.Response, error) {
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
func (h *trip) giveUp(stop Stop, a *attempt) error {
	h.closeNext()
	failure := h.failure(stop, after(h.ended(), a.err))
	if a.response != nil {
		failure.Status = a.response.StatusCode
	}
	return failure
}

func (h *trip) failure(stop Stop, err error) *Error {
	key := h.call.key
	failure := &Error{Stop: stop, Attempts: h.attempts, Key: key.abridged(), Err: err}
	if key.value != "" {
		failure.KeyAge = key.age()
	}
	return failure
}
