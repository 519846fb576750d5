package idemclient

import (
	"net/http"
	"net/url"
	"time"
)

// call is a call of the caller's, with all its retries and redirects. It is stored in the context
// of its requests, so that the request after a redirect finds it.
type call struct {
	key     callKey // the key of the first request
	hidden  hiddenKey
	method  string   // of the first request
	first   *url.URL // of the first request
	strayed bool     // a redirect has left the hosts that may get the key; never reset
	started time.Time
	last    Attempt
}

type inCall struct{}

// callOf returns the call of a response, or nil.
func callOf(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(inCall{}).(*call)
	return c
}

// failure returns an error of the call. It has the key of the call, even if a redirect has left the
// key behind.
func (c *call) failure(stop Stop, attempts int, err error) *Error {
	failure := &Error{Stop: stop, Attempts: attempts, Key: c.key.abridged(), Err: err, full: &c.hidden}
	if c.key.value != "" {
		failure.KeyAge = c.key.age()
	}
	return failure
}
