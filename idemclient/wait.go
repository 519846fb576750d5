package idemclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// sleep waits for the given time, or until the caller's context ends.
func (h *hop) sleep(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.request.Context().Done():
	case <-canceled(h.request):
	}
}

// ended returns the reason why the caller no longer waits for the call, or nil if the caller still
// waits.
func (h *hop) ended() error { return ended(h.request) }

func ended(req *http.Request) error {
	ctx := req.Context()
	select {
	case <-canceled(req):
		return context.Canceled
	default:
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// canceled returns the Cancel channel of the request, which is an older way to cancel a request.
// http.Client uses this channel for its Timeout.
func canceled(req *http.Request) <-chan struct{} {
	return req.Cancel //lint:ignore SA1019 callers may still set it
}

// after returns the error of a call. If ended is not nil, the caller no longer waits, and the
// result wraps both ended and the earlier error err. Otherwise the result is err.
func after(ended, err error) error {
	switch {
	case ended == nil || errors.Is(err, ended):
		return err
	case err == nil:
		return ended
	}
	return fmt.Errorf("%w, after: %w", ended, err)
}
