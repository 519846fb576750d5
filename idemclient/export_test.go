package idemclient

import (
	"net/http"
	"time"
)

// Internals that the external tests need.

func (t *Transport) Backoff(n int) time.Duration { return t.backoff(n) }

func RetryAfter(header http.Header, now time.Time) time.Duration { return retryAfter(header, now) }

func KeyAge(made, now time.Time) time.Duration { return callKey{made: made}.ageAt(now) }
