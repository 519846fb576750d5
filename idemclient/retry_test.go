package idemclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/idemclient"
)

// situation is a first answer that is followed by a good one, and whether the first one is retried.
type situation struct {
	name   string
	method string // POST if empty
	first  answer
	ctx    func(context.Context) context.Context
	header http.Header
	make   []string // Transport.Methods
	body   io.Reader
	want   idemclient.Stop // empty: it is retried
}

const again idemclient.Stop = ""

func responses() []situation {
	rows := []situation{
		{name: "500 that is a replay", first: status(500, "Idempotency-Replayed", "true"), want: idemclient.StopFinal},
		{name: "503 that is a replay", first: status(503, "Idempotency-Replayed", "?1"), want: idemclient.StopFinal},
		{name: "409 that is a replay", first: status(409, "Retry-After", "1", "Idempotency-Replayed", "true"), want: idemclient.StopFinal},
		{name: "500 that is a replay of Stripe's", first: status(500, "Idempotent-Replayed", "true"), want: idemclient.StopFinal},
		{name: "500 that is no replay", first: status(500, "Idempotency-Replayed", "false")},
		{name: "409 with Retry-After", first: status(409, "Retry-After", "1")},
		{name: "409 that says retryable", first: problem(409, `{"type":"urn:example:in-progress","retryable":true}`)},
		{name: "409 that says not retryable, with Retry-After", first: problem(409, `{"retryable":false}`, "Retry-After", "1"), want: idemclient.StopFinal},
		{name: "409 that says nothing", first: problem(409, `{"title":"conflict"}`), want: idemclient.StopFinal},
		{name: "409 that says retryable in plain JSON", first: document(409, "application/json", `{"retryable":true}`), want: idemclient.StopFinal},
		{name: "409 with a problem that is none", first: problem(409, `{"retryable":`), want: idemclient.StopFinal},
		{name: "409 with a problem beyond all bounds", first: problem(409, `{"retryable":true,"detail":"`+strings.Repeat("x", 64<<10)+`"}`), want: idemclient.StopFinal},
		{name: "503 that says not retryable", first: problem(503, `{"retryable":false}`), want: idemclient.StopFinal},
		{name: "503 that says not retryable, with a charset", first: document(503, "application/problem+json; charset=utf-8", `{"retryable":false}`), want: idemclient.StopFinal},
		{name: "429 that says not retryable", first: problem(429, `{"retryable":false}`), want: idemclient.StopFinal},
		{name: "503 that says retryable", first: problem(503, `{"retryable":true}`)},
		{name: "503 with a problem that is none", first: problem(503, `<html>`)},
		{name: "422 that says retryable", first: problem(422, `{"retryable":true}`, "Retry-After", "1"), want: idemclient.StopFinal},
		{name: "501 that says retryable", first: problem(501, `{"retryable":true}`), want: idemclient.StopFinal},
	}
	retried := map[int]bool{425: true, 429: true, 500: true, 502: true, 503: true, 504: true}
	for code := 200; code < 600; code++ {
		row := situation{name: fmt.Sprint(code), first: status(code), want: idemclient.StopFinal}
		if retried[code] {
			row.want = again
		}
		rows = append(rows, row)
	}
	return rows
}

// sought is a failure after net/http has looked for a connection. Before that it is one of the
// request.
func sought(err error) answer {
	return func(req *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(req.Context()).GetConn("orders.example:80")
		return nil, err
	}
}

func failures() []situation {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	return []situation{
		{name: "connection refused", first: failure(dial(syscall.ECONNREFUSED))},
		{name: "connection reset", first: failure(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})},
		{name: "broken pipe", first: failure(&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE})},
		{name: "end of file", first: failure(io.EOF)},
		{name: "unexpected end of file", first: failure(fmt.Errorf("reading: %w", io.ErrUnexpectedEOF))},
		{name: "name server fails", first: failure(dial(&net.DNSError{Err: "server misbehaving", IsTemporary: true}))},
		{name: "no such host", first: failure(dial(&net.DNSError{Err: "no such host", IsNotFound: true}))},
		{name: "dial timeout", first: failure(dial(context.DeadlineExceeded))},
		{name: "no answer in time", first: never},

		{name: "unknown authority", first: sought(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), want: idemclient.StopPermanent},
		{name: "certificate that the caller's own check refuses", first: sought(&tls.CertificateVerificationError{Err: errors.New("pinned")}), want: idemclient.StopPermanent},
		{name: "unknown authority, bare", first: sought(x509.UnknownAuthorityError{}), want: idemclient.StopPermanent},
		{name: "certificate of another host", first: sought(x509.HostnameError{Certificate: &x509.Certificate{}}), want: idemclient.StopPermanent},
		{name: "expired certificate", first: sought(x509.CertificateInvalidError{Reason: x509.Expired}), want: idemclient.StopPermanent},
		{name: "no system roots", first: sought(x509.SystemRootsError{}), want: idemclient.StopPermanent},
		{name: "client certificate refused", first: sought(&net.OpError{Op: "remote error", Err: tls.AlertError(42)}), want: idemclient.StopPermanent},
		{name: "no common protocol", first: sought(&net.OpError{Op: "local error", Err: tls.AlertError(70)}), want: idemclient.StopPermanent},
		{name: "not TLS", first: sought(tls.RecordHeaderError{}), want: idemclient.StopPermanent},
		{name: "HTTP instead of HTTPS", first: sought(http.ErrSchemeMismatch), want: idemclient.StopPermanent},
		{name: "malformed address", first: sought(dial(&net.AddrError{Err: "missing port"})), want: idemclient.StopPermanent},
		{name: "unknown network", first: sought(dial(net.UnknownNetworkError("carrier pigeon"))), want: idemclient.StopPermanent},
		{name: "encrypted client hello refused", first: sought(&tls.ECHRejectionError{}), want: idemclient.StopPermanent},
		{name: "address that is none", first: sought(dial(net.InvalidAddrError("x"))), want: idemclient.StopPermanent},
		{name: "address that cannot be read", first: sought(dial(&net.ParseError{Type: "IP address", Text: "x"})), want: idemclient.StopPermanent},

		{name: "of another kind, after a connection was sought", first: sought(errors.New("http2: stream closed"))},
		{name: "not of the network", first: failure(errors.New("the signing key is missing")), want: idemclient.StopPermanent},
		{name: "no answer and no error", first: failure(nil), want: idemclient.StopPermanent},
	}
}

func methods() []situation {
	down := status(503)
	withKey := func(ctx context.Context) context.Context { return idemclient.WithKey(ctx, "of-the-caller") }
	none := []string{}
	return []situation{
		{name: "GET", method: "GET", first: down},
		{name: "no method", method: "GET", first: down},
		{name: "HEAD", method: "HEAD", first: down},
		{name: "OPTIONS", method: "OPTIONS", first: down},
		{name: "TRACE", method: "TRACE", first: down},
		{name: "PUT", method: "PUT", first: down, body: strings.NewReader(order)},
		{name: "DELETE", method: "DELETE", first: down},
		{name: "POST", method: "POST", first: down, body: strings.NewReader(order)},
		{name: "POST of nothing", method: "POST", first: down},
		{name: "PATCH", method: "PATCH", first: down, body: strings.NewReader(order)},
		{name: "another method", method: "LOCK", first: down, want: idemclient.StopUnsafe},
		{name: "another method with a key", method: "LOCK", first: down, ctx: withKey},
		{name: "another method that gets a key", method: "LOCK", first: down, make: []string{"LOCK"}},
		{name: "POST without a key", first: down, make: none, want: idemclient.StopUnsafe},
		{name: "POST without a key, network error", first: failure(io.EOF), make: none, want: idemclient.StopUnsafe},
		{name: "POST without a key, 409 in progress", first: status(409, "Retry-After", "1"), make: none, want: idemclient.StopUnsafe},
		{name: "POST with a key in the context", first: down, make: none, ctx: withKey},
		{name: "POST with a key in the header", first: down, make: none, header: http.Header{"Idempotency-Key": {"of-the-caller"}}},
		{name: "POST that the caller vouches for", first: down, header: http.Header{"Idempotency-Key": {}}},
		{name: "body beyond the buffer", first: down, body: io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20+1))), want: idemclient.StopBody},
		{name: "body within the buffer", first: down, body: io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)))},
	}
}

func TestTransport_WhatIsRetried(t *testing.T) {
	t.Parallel()
	for kind, rows := range map[string][]situation{"response": responses(), "error": failures(), "method": methods()} {
		for _, row := range rows {
			bubble(t, kind+"/"+row.name, row.check)
		}
	}
}

func (row situation) check(t *testing.T) {
	server, observed := &script{answers: []answer{row.first, status(299)}}, &observer{}
	ctx := t.Context()
	if row.ctx != nil {
		ctx = row.ctx(ctx)
	}
	if row.method == "" {
		row.method = http.MethodPost
	}
	req := request(t, ctx, row.method, somewhere, row.body)
	maps.Copy(req.Header, row.header)
	transport := &idemclient.Transport{Base: server, Methods: row.make, Observe: observed.observe}
	resp, err := transport.RoundTrip(req)
	if resp != nil {
		finish(t, resp)
	}
	first := observed.all()[0]
	if first.Stop != row.want {
		t.Fatalf("after the first answer it stopped because of %q, want %q (%v)", first.Stop, row.want, err)
	}
	switch sent := len(server.requests()); {
	case row.want == again && (err != nil || resp.StatusCode != 299 || sent != 2):
		t.Errorf("%d requests, response %v, error %v; want the good answer from a second request", sent, resp, err)
	case row.want != again && sent != 1:
		t.Errorf("%d requests, want 1", sent)
	case row.want != again && (resp == nil) == (err == nil):
		t.Errorf("response %v, error %v; want what the only attempt brought", resp, err)
	}
}
