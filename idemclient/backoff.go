package idemclient

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// pause is how long to leave the server alone before retry n, counted from 0: as long as it asked for, and then a random
// time, so that those who were told the same do not come back together.
func (t *Transport) pause(n int, resp *http.Response) time.Duration {
	wait := t.backoff(n)
	if resp != nil {
		wait += min(retryAfter(resp.Header, time.Now()), max(0, cmp.Or(t.MaxRetryAfter, time.Minute)), unlimited/2)
	}
	return wait
}

// backoff is the full jitter, rand(0, min(cap, base·2ⁿ)).
func (t *Transport) backoff(n int) time.Duration {
	bound, most := cmp.Or(t.MinBackoff, 250*time.Millisecond), cmp.Or(t.MaxBackoff, 10*time.Second)
	for ; n > 0 && bound <= most/2; n-- {
		bound *= 2
	}
	if n > 0 {
		bound = most
	}
	if bound = min(bound, most); bound <= 0 {
		return 0
	}
	return rand.N(bound)
}

// retryAfter reads the header in both of its forms. What it cannot read, and what is past, is no wait. A date is compared
// with the server's own clock, if the response tells it.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if strings.Trim(value, "0123456789") == "" {
		return seconds(value)
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if servers, err := http.ParseTime(header.Get("Date")); err == nil {
		now = servers
	}
	return max(0, date.Sub(now))
}

// seconds reads decimal digits, however many; none are none.
func seconds(digits string) time.Duration {
	var n time.Duration
	for _, digit := range digits {
		if n = 10*n + time.Duration(digit-'0'); n > unlimited/time.Second/10-1 {
			return unlimited / 2
		}
	}
	return n * time.Second
}
