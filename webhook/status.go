package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// StatusError says that an endpoint has answered, and not by 2xx.
type StatusError struct {
	Status     int
	RetryAfter time.Duration // 0 if it does not say
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("webhook: the endpoint has answered %d %s", e.Status, http.StatusText(e.Status))
}

// Class is that of a dead letter.
func (e *StatusError) Class() string { return "status " + strconv.Itoa(e.Status) }

// retryAfter is for how long an answer asks to be left alone. What cannot be read, and what is past, is no time.
func retryAfter(header http.Header) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}
