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

// Attempt tells of one attempt. Printed in any way, it shows the key abridged; FullKey has it in full.
type Attempt struct {
	Method   string
	Host     string
	Key      string        // that was sent, abridged, fit for a log; empty if none was
	Number   int           // counted from 1, from each redirect anew
	Sent     int           // how often net/http has sent it: see the package's comment on its own retries
	Status   int           // of the response; 0 if there was none
	Err      error         // why there was none
	Duration time.Duration // until then
	Wait     time.Duration // before the next attempt, if there is one
	Stop     Stop          // why there is none

	full *hiddenKey
}

// FullKey returns the whole key of the call and when it was made, as [Error.FullKey] does. It returns "" if the call has
// no key.
func (a Attempt) FullKey() (key string, made time.Time) {
	return a.full.key()
}

// attempt is one attempt under way, or what came of it: a response or an error.
type attempt struct {
	call     *call
	request  *http.Request
	response *http.Response
	problem  problem
	err      error
	took     time.Duration

	cancel  context.CancelCauseFunc // ends the context that response.Body is read under
	sought  atomic.Bool             // net/http has looked for a connection
	written atomic.Int32            // connections it has got, to send the request on
}

// send makes an attempt. Its context outlives it if there is a response, until the body of that is closed.
func (a *attempt) send(base http.RoundTripper, req *http.Request, header http.Header, body io.ReadCloser, timeout time.Duration) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(req.Context())
	a.cancel = cancel
	a.request = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.sought.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { a.written.Add(1) },
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

// roundTrip holds base to its contract: either a response or an error.
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

// sent is how often the request went out, as far as net/http tells.
func (a *attempt) sent() int {
	return max(1, int(a.written.Load()))
}

func (a *attempt) transient() bool {
	if a.err != nil {
		return transientError(a.err, a.sought.Load())
	}
	return transientResponse(a.response, a.problem)
}
