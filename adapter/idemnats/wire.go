package idemnats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// The headers that a Publisher adds for the ID, the key and the type of a message. Key and type are
// percent-encoded ([url.PathEscape]), because NATS trims the values of headers and removes line
// breaks.
const (
	HeaderID   = jetstream.MsgIDHeader
	HeaderKey  = "Idem-Key"
	HeaderType = "Idem-Type"
)

var errRefused = errors.New("idemnats: the message cannot be published")

func encode(m outbox.Message, subject string) (*nats.Msg, error) {
	if !isSubject(subject) {
		return nil, fmt.Errorf("%w: its subject is invalid or reserved for the server; correct PublisherConfig.Subject", errRefused)
	}
	for name, value := range m.Headers {
		if isReserved(name) {
			return nil, fmt.Errorf("%w: one of its headers begins with Nats- or Idem-, which are reserved; rename the header", errRefused)
		}
		if strings.TrimSpace(value) != value || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("%w: a header has a line break or outer spaces, which NATS removes; encode the value", errRefused)
		}
	}
	return &nats.Msg{Subject: subject, Data: m.Payload, Header: headers(m.ID, m.Key, m.Type, m.Headers)}, nil
}

func headers(id, key, kind string, own map[string]string) nats.Header {
	h := nats.Header{HeaderID: []string{id}}
	for name, value := range own {
		h[name] = []string{value}
	}
	if key != "" {
		h[HeaderKey] = []string{url.PathEscape(key)}
	}
	if kind != "" {
		h[HeaderType] = []string{url.PathEscape(kind)}
	}
	return h
}

// isReserved reports whether NATS or this package gives a header a meaning. For example,
// Nats-Rollup makes the server empty the stream, and Nats-Msg-Id has the ID.
func isReserved(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "idem-")
}

// ownHeaders returns the headers that are not reserved, each with its first value.
func ownHeaders(h nats.Header) map[string]string {
	own := make(map[string]string, len(h))
	for name, values := range h {
		if !isReserved(name) && len(values) > 0 {
			own[name] = values[0]
		}
	}
	return own
}

// isSubject reports whether a message may be published to subject: the subject has no empty tokens
// and no wildcards, and the server does not reserve it.
func isSubject(subject string) bool {
	if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") {
		return false
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsAny(token, " \t\r\n\x00") {
			return false
		}
	}
	return true
}

// decode returns the value of a header after percent-decoding, or the value itself if it cannot be
// decoded.
func decode(h nats.Header, name string) string {
	value := h.Get(name)
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// redriven is the jetstream.Msg of a redriven dead letter, which comes from the database and not
// from a stream. It has a payload and headers, but no subject and no metadata. Its methods for
// acknowledgement do nothing.
type redriven struct{ message inbox.Message }

func (r redriven) Headers() nats.Header {
	return headers(r.message.ID, r.message.Key, r.message.Type, r.message.Headers)
}

func (redriven) Metadata() (*jetstream.MsgMetadata, error) { return nil, jetstream.ErrNotJSMessage }
func (r redriven) Data() []byte                            { return r.message.Payload }
func (redriven) Subject() string                           { return "" }
func (redriven) Reply() string                             { return "" }
func (redriven) Ack() error                                { return nil }
func (redriven) DoubleAck(context.Context) error           { return nil }
func (redriven) Nak() error                                { return nil }
func (redriven) NakWithDelay(time.Duration) error          { return nil }
func (redriven) InProgress() error                         { return nil }
func (redriven) Term() error                               { return nil }
func (redriven) TermWithReason(string) error               { return nil }
