package idemclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// transientResponse reports whether the same request may get a different answer later.
func transientResponse(resp *http.Response, p problem) bool {
	if isReplay(resp.Header) || p.Retryable != nil && !*p.Retryable {
		return false
	}
	switch resp.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		http.StatusTooManyRequests, http.StatusTooEarly:
		return true
	case http.StatusConflict:
		return p.Retryable != nil || resp.Header.Get("Retry-After") != ""
	}
	return false
}

// mayBeTransient reports whether the response would be transient if its problem document allowed a
// retry.
func mayBeTransient(resp *http.Response) bool {
	retryable := true
	return transientResponse(resp, problem{Retryable: &retryable})
}

// isReplay reports whether the server marks the answer as recorded. A recorded answer never
// changes. Stripe uses the second of the two header fields.
func isReplay(header http.Header) bool {
	for _, name := range []string{"Idempotency-Replayed", "Idempotent-Replayed"} {
		if value := header.Get(name); strings.EqualFold(value, "true") || value == "?1" {
			return true
		}
	}
	return false
}

// transientError reports whether another attempt may succeed after err. The argument gotToDial is
// true if net/http has begun to look for a connection. An earlier error is about the request itself
// (its URL, a header or the method), and would be the same in the next attempt. A later error is
// transient unless it is known to be permanent.
func transientError(err error, gotToDial bool) bool {
	if slices.ContainsFunc(permanentErrors, func(is func(error) bool) bool { return is(err) }) {
		return false
	}
	return gotToDial || is[net.Error](err) || errors.Is(err, ErrAttemptTimeout) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// permanentErrors are functions that recognize errors which the next attempt would get, too.
var permanentErrors = []func(error) bool{
	func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) },
	// The certificate of the server was rejected.
	is[*tls.CertificateVerificationError], is[x509.UnknownAuthorityError], is[x509.HostnameError],
	is[x509.CertificateInvalidError], is[x509.SystemRootsError],
	// One side rejected the TLS handshake, for example because of its version or the client
	// certificate.
	is[tls.RecordHeaderError], is[*tls.ECHRejectionError],
	func(err error) bool {
		alert, ok := errors.AsType[*net.OpError](err)
		return ok && (alert.Op == "remote error" || alert.Op == "local error")
	},
	// The address cannot be dialed.
	is[*net.AddrError], is[net.InvalidAddrError], is[net.UnknownNetworkError], is[*net.ParseError],
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
