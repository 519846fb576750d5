package idemhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Header fields of a replay.
const (
	// OriginalDateHeader has the time at which the answer was recorded.
	OriginalDateHeader = "Idempotency-Original-Date"

	// ExpiresHeader has the time at which the record expires. From then on, the key counts as new.
	ExpiresHeader = "Idempotency-Expires"
)

// neverRecorded are the header fields that hold secrets, or belong to one exchange or one
// connection. A replay has new values of these fields, or does not have the fields.
var neverRecorded = fieldSet(
	"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Clear-Site-Data", // credentials and sessions
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // one connection
	"Date", "Age", "Via", "Alt-Svc", "Server-Timing", "Traceparent", "Tracestate", // one exchange
	"Request-Id", "X-Request-Id", "Correlation-Id", "X-Correlation-Id", "X-Trace-Id",
	"Ratelimit",
	OriginalDateHeader, ExpiresHeader,
)

// neverRecordedFamilies are prefixes of further fields that are never recorded, in canonical form.
var neverRecordedFamilies = []string{"Proxy-", "Ratelimit-", "X-Ratelimit-"}

func isNeverRecorded(name string) bool {
	return neverRecorded[name] ||
		slices.ContainsFunc(neverRecordedFamilies, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func fieldSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// headerFilter decides which header fields of an answer are recorded.
type headerFilter struct {
	only     map[string]bool // the fields of Config.RecordHeader; nil for all fields
	replayed string          // Config.ReplayedHeader, which is never recorded
}

func newHeaderFilter(only []string, replayed string) (headerFilter, error) {
	f := headerFilter{replayed: replayed}
	if only != nil {
		f.only = fieldSet(only...)
	}
	for name := range f.only {
		if f.neverRecords(name) {
			return f, fmt.Errorf("idemhttp: Config.RecordHeader: %s is never recorded", name)
		}
	}
	return f, nil
}

func (f *headerFilter) neverRecords(name string) bool {
	return name == f.replayed || isNeverRecorded(name)
}

// records reports whether a field is recorded. The argument connection has the values of the header
// Connection, which lists further fields that belong to one connection and are not recorded.
func (f *headerFilter) records(name string, connection []string) bool {
	name = http.CanonicalHeaderKey(name)
	if f.neverRecords(name) || f.only != nil && !f.only[name] {
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

// setFields sets the fields in header. A field without values is not sent.
func setFields(header http.Header, fields map[string][]string) {
	for name, values := range fields {
		header[name] = values
	}
}
