package idemclient

import (
	"net/http"
	"time"
)

// call is a logical call: one for its caller, however often it is retried or redirected. It travels in the context of its
// requests, which is how the request after a redirect finds it.
type call struct {
	key     callKey
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
