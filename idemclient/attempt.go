package idemclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Attempt describes one attempt to send a request. A printed Attempt shows the key abridged.
// FullKey returns the whole key.
type Attempt struct {
	Method   string
	Host     string
	Key      string        // the key that was sent, abridged for logs; empty if none was sent
	Number   int           // the number of the attempt, from 1; each redirect starts again at 1
	Sent     int           // how often net/http has sent the request, see "The retry budget" in the package comment
	Status   int           // the status of the response; 0 if there was no response
	Err      error         // why there was no response
	Duration time.Duration // the time until the header of the response arrived, or the error
	Wait     time.Duration // the pause before the next attempt; 0 if there is no next attempt
	Stop     Stop          // why there is no next attempt; empty if there is a next attempt

	full *hiddenKey
}

// FullKey returns the whole key of the call and the time at which the key was made, like
// [Error.FullKey]. It returns "" if the call has no key.
func (a Attempt) FullKey() (key string, made time.Time) {
	return a.full.key()
}

// attempt is one attempt in progress, or its result: a response or an error.
type attempt struct {
	call     *call
	request  *http.Request
	response *http.Response
	problem  problem
	err      error
	took     time.Duration

	cancel    context.CancelCauseFunc // cancels the context of the attempt, and with it reads of response.Body
	gotToDial atomic.Bool             // net/http has begun to look for a connection
	conns     atomic.Int32            // how many connections net/http has used for the request
}

// send makes the attempt. If there is a response, the context of the attempt lives until the body
// of the response is closed.
func (a *attempt) send(base http.RoundTripper, req *http.Request, header http.Header, body io.ReadCloser, timeout time.Duration) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(req.Context())
	a.cancel = cancel
	a.request = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.gotToDial.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { a.conns.Add(1) },
	}))
	a.request.Header, a.request.Body = header, body
	late := time.AfterFunc(timeout, func() { cancel(ErrAttemptTimeout) })
	a.response, a.err = roundTrip(base, a.request)
	if a.err == nil && mayBeTransient(a.response) {
		a.problem = readProblem(a.response)
	}
	if !late.Stop() && req.Context().Err() == nil {
		a.discard()
		a.response, a.err = nil, ErrAttemptTimeout
	}
	if a.err != nil {
		cancel(nil)
	}
	a.took = time.Since(began)
}

// roundTrip sends a request with base. It returns an error if base returns neither a response nor
// an error.
func roundTrip(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := base.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, fmt.Errorf("%T returned neither a response nor an error", base)
	}
	return resp, nil
}

// sent returns how often the request was sent, as far as net/http reports it.
func (a *attempt) sent() int {
	return max(1, int(a.conns.Load()))
}

func (a *attempt) transient() bool {
	if a.err != nil {
		return transientError(a.err, a.gotToDial.Load())
	}
	return transientResponse(a.response, a.problem)
}
