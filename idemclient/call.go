package idemclient

import (
	"net/http"
	"net/url"
	"time"
)

// call is a logical call: one for its caller, however often it is retried or redirected. It travels in the context of its
// requests, which is how the request after a redirect finds it.
type call struct {
	key     callKey // made or given for the first request
	hidden  hiddenKey
	method  string   // of the first request
	first   *url.URL // of the first request
	strayed bool     // a redirect has left the hosts that may have the key, for good
	started time.Time
	last    Attempt
}

type inCall struct{}

// callOf returns the call that a response belongs to, or nil.
func callOf(resp *http.Response) *call {
	if resp == nil || resp.Request == nil {
		return nil
	}
	c, _ := resp.Request.Context().Value(inCall{}).(*call)
	return c
}

// failure is an error of the call. Its key is that of the call, also where the redirects have left it behind.
func (c *call) failure(stop Stop, attempts int, err error) *Error {
	failure := &Error{Stop: stop, Attempts: attempts, Key: c.key.abridged(), Err: err, full: &c.hidden}
	if c.key.value != "" {
		failure.KeyAge = c.key.age()
	}
	return failure
}
