package idemclient

import (
	"io"
	"net/http"
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
		a.response.Body = &owned{a.response.Body, a}
	}
	return a.response
}

type owned struct {
	io.ReadCloser
	attempt *attempt
}

func (o *owned) Close() error {
	defer o.attempt.cancel(nil)
	return o.ReadCloser.Close()
}
