package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// field returns the value of a header field. Of one that is there twice it cannot be said which the provider has sent.
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

// setHeaders sets those of a message. HTTP knows names in any case alike, and takes spaces off values.
func setHeaders(header http.Header, own map[string]string) error {
	met := make(map[string]bool, len(own))
	for name, value := range own {
		canonical := http.CanonicalHeaderKey(name)
		if met[canonical] || strings.Trim(value, " \t") != value {
			return fmt.Errorf("webhook: HTTP would change the value of the header %.64q", name)
		}
		met[canonical] = true
		header.Set(name, value)
	}
	return nil
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
