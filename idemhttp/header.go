package idemhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The header fields of a replay.
const (
	// OriginalDateHeader says when the answer was recorded.
	OriginalDateHeader = "Idempotency-Original-Date"

	// ExpiresHeader says from when on the key counts as new.
	ExpiresHeader = "Idempotency-Expires"
)

// neverKept are the header fields that belong to one exchange, or to one connection, or that are secrets. A replay has its
// own or none.
var neverKept = fieldSet(
	"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Clear-Site-Data", // credentials and sessions
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // one connection
	"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization",
	"Date", "Age", "Via", "Alt-Svc", "Server-Timing", "Traceparent", "Tracestate", // one exchange
	"Request-Id", "X-Request-Id", "Correlation-Id", "X-Correlation-Id", "X-Trace-Id",
	"Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
	OriginalDateHeader, ExpiresHeader,
)

func fieldSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// keeper decides which header fields of an answer are recorded.
type keeper struct {
	only  map[string]bool // nil for all
	never map[string]bool
}

func newKeeper(only []string, replayed string) (*keeper, error) {
	k := &keeper{never: neverKept}
	if replayed = http.CanonicalHeaderKey(replayed); !neverKept[replayed] {
		k.never = fieldSet(replayed)
		for name := range neverKept {
			k.never[name] = true
		}
	}
	if only == nil {
		return k, nil
	}
	k.only = fieldSet(only...)
	for name := range k.only {
		if k.never[name] {
			return nil, fmt.Errorf("idemhttp: Config.Keep: %s is never kept", name)
		}
	}
	return k, nil
}

// keeps reports whether a field is recorded. The fields that Connection names are those of one connection.
func (k *keeper) keeps(name string, connection []string) bool {
	name = http.CanonicalHeaderKey(name)
	if k.never[name] || k.only != nil && !k.only[name] {
		return false
	}
	return !slices.ContainsFunc(connection, func(list string) bool {
		for option := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(option), name) {
				return true
			}
		}
		return false
	})
}

// setFields puts fields into header, in the place of what is there. A field without values is not sent.
func setFields(header http.Header, fields map[string][]string) {
	for name, values := range fields {
		header[name] = values
	}
}
