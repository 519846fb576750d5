package idemclient

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pause returns the pause before retry n, counted from 0: the Retry-After of the last response,
// plus a random backoff. The random part prevents clients that got the same Retry-After from
// retrying at the same moment.
func (t *Transport) pause(n int, resp *http.Response) time.Duration {
	wait := t.backoff(n)
	if resp != nil {
		wait += min(retryAfter(resp.Header, time.Now()), max(0, cmp.Or(t.MaxRetryAfter, time.Minute)), unlimited/2)
	}
	return wait
}

// backoff returns a random time between 0 and min(MaxBackoff, MinBackoff·2ⁿ), called full jitter.
func (t *Transport) backoff(n int) time.Duration {
	bound, limit := cmp.Or(t.MinBackoff, 250*time.Millisecond), cmp.Or(t.MaxBackoff, 10*time.Second)
	for ; n > 0 && bound <= limit/2; n-- {
		bound *= 2
	}
	if n > 0 {
		bound = limit
	}
	if bound = min(bound, limit); bound <= 0 {
		return 0
	}
	return rand.N(bound)
}

// retryAfter parses a Retry-After in seconds or as a date. It returns 0 if the value is invalid or
// in the past. A date is compared with the header Date of the response, or with the argument now if
// the response has no Date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	n, err := strconv.ParseUint(value, 10, 64) // if the number is out of range, n is the largest uint64
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(unlimited/2/time.Second))) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if serverNow, err := http.ParseTime(header.Get("Date")); err == nil {
		now = serverNow
	}
	return max(0, date.Sub(now))
}
