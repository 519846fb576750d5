package idemclient

import (
	"net/http"
	"net/url"
	"time"
)

// call is one call of http.Client, with all its retries and redirects. It is stored in the context
// of each request, so that callFor finds the call after a redirect.
type call struct {
	key     callKey // the key of the first request
	hidden  hiddenKey
	method  string   // the method of the first request
	first   *url.URL // the URL of the first request
	strayed bool     // a redirect has left the hosts that may get the key; never reset
	started time.Time
	last    Attempt
}

type inCall struct{}

// callOf returns the call that a response belongs to, or nil if the response does not come from a
// Transport.
func callOf(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(inCall{}).(*call)
	return c
}

// failure returns an *Error of the call. The error has the key of the call, even if a redirect has
// dropped the key.
func (c *call) failure(stop Stop, attempts int, err error) *Error {
	failure := &Error{Stop: stop, Attempts: attempts, Key: c.key.abridged(), Err: err, full: &c.hidden}
	if c.key.value != "" {
		failure.KeyAge = c.key.age()
	}
	return failure
}
