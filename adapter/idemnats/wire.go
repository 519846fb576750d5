package idemnats

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/outbox"
)

// What a message carries besides its payload and its own headers. The values are percent-encoded ([url.PathEscape]),
// because NATS trims headers and takes line breaks out of them.
const (
	HeaderID   = jetstream.MsgIDHeader // as it is: it is a UUID
	HeaderKey  = "Idem-Key"
	HeaderType = "Idem-Type"
)

var errRefused = errors.New("idemnats: the message cannot be published as it is")

func encode(m outbox.Message, subject string) (*nats.Msg, error) {
	if !isSubject(subject) {
		return nil, fmt.Errorf("%w: its subject is none that one can publish to, or one of the server's own", errRefused)
	}
	msg := &nats.Msg{Subject: subject, Data: m.Payload, Header: nats.Header{}}
	for name, value := range m.Headers {
		if isReserved(name) {
			return nil, fmt.Errorf("%w: headers that begin with Nats- or Idem- are not its own", errRefused)
		}
		if strings.TrimSpace(value) != value || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("%w: NATS would change the value of one of its headers", errRefused)
		}
		msg.Header[name] = []string{value}
	}
	msg.Header[HeaderID] = []string{m.ID}
	if m.Key != "" {
		msg.Header[HeaderKey] = []string{url.PathEscape(m.Key)}
	}
	if m.Type != "" {
		msg.Header[HeaderType] = []string{url.PathEscape(m.Type)}
	}
	return msg, nil
}

// isReserved says whether a header is none of the message's own: Nats-Rollup would empty the stream, Nats-Msg-Id would be another
// message.
func isReserved(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "idem-")
}

// ownHeaders returns the message's own headers, nil if it has none: of several of one name the first.
func ownHeaders(h nats.Header) map[string]string {
	var own map[string]string
	for name, values := range h {
		if isReserved(name) || len(values) == 0 {
			continue
		}
		if own == nil {
			own = make(map[string]string, len(h))
		}
		own[name] = values[0]
	}
	return own
}

// isSubject says whether one can publish to it: tokens that are neither empty nor wildcards, and not the server's own.
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

// decode returns the value of a header as it was before it was encoded, or as it is if it was not.
func decode(h nats.Header, name string) string {
	value := h.Get(name)
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}
