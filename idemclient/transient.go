package idemclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
)

// transientResponse reports whether the same request may be answered otherwise if it is sent again.
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

// mayBeTransient reports whether it matters what a problem document says.
func mayBeTransient(resp *http.Response) bool {
	retryable := true
	return transientResponse(resp, problem{Retryable: &retryable})
}

// isReplay reports whether the server says that this answer is recorded: it will be the same every time. The second name
// is Stripe's.
func isReplay(header http.Header) bool {
	for _, name := range []string{"Idempotency-Replayed", "Idempotent-Replayed"} {
		if value := header.Get(name); strings.EqualFold(value, "true") || value == "?1" {
			return true
		}
	}
	return false
}

// transientError reports whether an attempt that ended in an error may end otherwise if it is made again. What net/http
// refuses before it looks for a connection (a URL, a header, a method) it will refuse again; of other errors that it makes
// only those are final which are known to be.
func transientError(err error, sought bool) bool {
	if permanent(err) {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return sought || network || errors.Is(err, ErrAttemptTimeout) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func permanent(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || certificate(err) || handshake(err) || address(err)
}

// certificate reports whether the other side is not who it should be.
func certificate(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) || is[x509.SystemRootsError](err)
}

// handshake reports whether one of the sides refused the other's TLS: a protocol, a client's certificate.
func handshake(err error) bool {
	if alert, ok := errors.AsType[*net.OpError](err); ok && (alert.Op == "remote error" || alert.Op == "local error") {
		return true
	}
	return is[tls.RecordHeaderError](err) || is[*tls.ECHRejectionError](err)
}

// address reports whether a name is none that could be dialed.
func address(err error) bool {
	return is[*net.AddrError](err) || is[net.InvalidAddrError](err) || is[net.UnknownNetworkError](err) || is[*net.ParseError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
