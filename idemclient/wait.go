package idemclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// sleep waits, unless the caller's context ends first.
func (h *trip) sleep(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.request.Context().Done():
	case <-h.canceled():
	}
}

// ended returns why the caller no longer waits, or nil.
func (h *trip) ended() error {
	ctx := h.request.Context()
	select {
	case <-h.canceled():
		return context.Canceled
	default:
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// canceled is the older way to end a request, which http.Client still uses for its Timeout.
func (h *trip) canceled() <-chan struct{} {
	return h.request.Cancel //lint:ignore SA1019 it is the caller's to set
}

// after is the end of the caller's wait, if that has ended, and what had happened before.
func after(ended, err error) error {
	switch {
	case ended == nil || errors.Is(err, ended):
		return err
	case err == nil:
		return ended
	}
	return fmt.Errorf("%w, after: %w", ended, err)
}
