package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// field returns the value of a header field. Of one that is there twice nobody can say which the provider has sent.
func field(header http.Header, name string) (string, error) {
	switch values := header.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("%w: there are %d fields %s", ErrSignature, len(values), name)
	}
}

// unixTime reads a time in seconds, which is written in digits and nothing else.
func unixTime(digits string) (time.Time, error) {
	if digits == "" || len(digits) > 12 || strings.Trim(digits, "0123456789") != "" {
		return time.Time{}, fmt.Errorf("%w: it has no time", ErrSignature)
	}
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic(err) // twelve digits fit
	}
	return time.Unix(seconds, 0), nil
}

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
