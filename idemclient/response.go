package idemclient

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits for reading the rest of a discarded response, so that its connection can be reused.
const (
	maxDrain     = 64 << 10
	maxDrainTime = time.Second
)

// discard drains and closes the response, if there is one, and ends the context of the attempt.
func (a *attempt) discard() {
	if a.response != nil && a.response.Body != nil {
		late := time.AfterFunc(maxDrainTime, func() { a.cancel(nil) })
		io.Copy(io.Discard, io.LimitReader(a.response.Body, maxDrain))
		a.response.Body.Close()
		late.Stop()
	}
	a.cancel(nil)
}

// handOver passes the response to the caller. The context of the attempt ends when the caller
// closes the body. After an upgrade (status 101) the body is the connection itself. The body is
// then passed on unchanged, and the context of the attempt ends only with the caller's context.
func (a *attempt) handOver() *http.Response {
	switch {
	case a.response.Body == nil, a.response.Body == http.NoBody:
		a.cancel(nil)
	case a.response.StatusCode != http.StatusSwitchingProtocols:
		a.response.Body = &callerBody{ReadCloser: a.response.Body, attempt: a}
	}
	return a.response
}

// callerBody is the body of a response that was passed to the caller.
type callerBody struct {
	io.ReadCloser
	attempt *attempt
	closed  atomic.Bool
}

// Read returns an *Error with the key if the body breaks off and the call has a key. An error after
// Close stays unchanged.
func (b *callerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF || b.closed.Load() || b.attempt.call.key.value == "" {
		return n, err
	}
	return n, b.attempt.brokenOff(err)
}

func (b *callerBody) Close() error {
	b.closed.Store(true)
	defer b.attempt.cancel(nil)
	return b.ReadCloser.Close()
}

// brokenOff returns the error of a response whose body broke off.
func (a *attempt) brokenOff(err error) error {
	stop, ended := StopBroken, ended(a.request)
	if ended != nil {
		stop, err = StopEnded, after(ended, err)
	}
	failure := a.call.failure(stop, a.call.last.Number, err)
	failure.Status = a.response.StatusCode
	return failure
}
