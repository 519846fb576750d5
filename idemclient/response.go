package idemclient

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// How much of an abandoned response is read, so that its connection can be used again, and for how long.
const (
	maxDrain     = 64 << 10
	maxDrainTime = time.Second
)

// discard gives up the response of an attempt, if it has one.
func (a *attempt) discard() {
	if a.response != nil && a.response.Body != nil {
		late := time.AfterFunc(maxDrainTime, func() { a.cancel(nil) })
		io.Copy(io.Discard, io.LimitReader(a.response.Body, maxDrain))
		a.response.Body.Close()
		late.Stop()
	}
	a.cancel(nil)
}

// handOver makes the response the caller's. The context of the attempt ends when the caller closes the body. After an
// upgrade the body is the connection, which is passed on as it is and lives as long as the caller's context.
func (a *attempt) handOver() *http.Response {
	switch {
	case a.response.Body == nil, a.response.Body == http.NoBody:
		a.cancel(nil)
	case a.response.StatusCode != http.StatusSwitchingProtocols:
		a.response.Body = &owned{ReadCloser: a.response.Body, attempt: a}
	}
	return a.response
}

// owned is the body of a response that is the caller's.
type owned struct {
	io.ReadCloser
	attempt *attempt
	closed  atomic.Bool
}

// Read makes an error lead to the key, if there is one. To read what one has closed oneself is no failure of the call.
func (o *owned) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if err == nil || err == io.EOF || o.closed.Load() || o.attempt.call.key.value == "" {
		return n, err
	}
	return n, o.attempt.brokenOff(err)
}

func (o *owned) Close() error {
	o.closed.Store(true)
	defer o.attempt.cancel(nil)
	return o.ReadCloser.Close()
}

// brokenOff is the error of a response whose body cannot be read to its end.
func (a *attempt) brokenOff(err error) error {
	stop, ended := StopBroken, ended(a.request)
	if ended != nil {
		stop, err = StopEnded, after(ended, err)
	}
	failure := a.call.failure(stop, a.call.last.Number, err)
	failure.Status = a.response.StatusCode
	return failure
}
