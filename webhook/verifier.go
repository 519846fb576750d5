package webhook

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Verifier is the signature scheme of a provider, such as [StandardWebhooks], [Stripe] and
// [GitHub].
type Verifier interface {
	// Verify returns the event of a request if its signature is valid. The sender of the request does
	// not receive the text of the error. body is the whole body as it arrived, and must not be
	// changed. The Body of r has already been read.
	//
	// If the provider signs the time of a delivery, Verify returns it in Event.SentAt. The Handler
	// decides whether that time is too old.
	Verify(r *http.Request, body []byte) (Event, error)
}

// Event is the verified event of a request.
type Event struct {
	// ID is the provider's ID of the event, which is the same in each delivery. The Handler refuses an
	// event without an ID. For providers without IDs, see [ByContent].
	ID string

	// SentAt is the time at which this delivery was signed. It is zero if the provider signs no time.
	SentAt time.Time

	// Type is the provider's type of the event, if the type is outside of the body.
	Type string

	// Payload is the content of the event. A Verifier sets it if the body differs between deliveries
	// of one event. If it is nil, the body is the payload.
	Payload []byte
}

// scheme is a Verifier that has the secrets of an endpoint.
type scheme struct {
	secrets secrets
	verify  verifyFunc
}

type verifyFunc func(secrets secrets, r *http.Request, body []byte) (Event, error)

func newScheme(texts []string, decode func(string) ([]byte, error), verify verifyFunc) (Verifier, error) {
	secrets, err := newSecrets(texts, decode)
	if err != nil {
		return nil, err
	}
	return &scheme{secrets, verify}, nil
}

// Verify implements Verifier.
func (s *scheme) Verify(r *http.Request, body []byte) (Event, error) {
	return s.verify(s.secrets, r, body)
}

// ErrSignature says that a request has no valid signature.
var ErrSignature = errors.New("webhook: no valid signature")

// ByContent returns a Verifier that verifies like v and replaces the ID of each event by a hash of
// the body and of the signed time, if there is one. Use it for providers whose events have no ID,
// or an ID that is not signed. Two events with the same content and time count as one event.
func ByContent(v Verifier) Verifier { return byContent{v} }

type byContent struct{ Verifier }

func (v byContent) Verify(r *http.Request, body []byte) (Event, error) {
	event, err := v.Verifier.Verify(r, body)
	if err != nil {
		return Event{}, err
	}
	content := sha256.New()
	if !event.SentAt.IsZero() {
		content.Write(binary.BigEndian.AppendUint64(nil, uint64(event.SentAt.UnixNano())))
	}
	content.Write(body)
	event.ID = "sha256:" + hex.EncodeToString(content.Sum(nil))
	return event, nil
}

// singleField returns the value of a header field, or "" if there is none. A field that occurs
// twice is an error, because the provider has sent only one of the values.
func singleField(header http.Header, name string) (string, error) {
	switch values := header.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("%w: the field %s occurs %d times", ErrSignature, name, len(values))
	}
}

// unixTime parses a Unix time in seconds that has up to 12 digits.
func unixTime(digits string) (time.Time, error) {
	if digits == "" || len(digits) > 12 || strings.Trim(digits, "0123456789") != "" {
		return time.Time{}, fmt.Errorf("%w: there is no valid time", ErrSignature)
	}
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic(err) // an int64 can hold twelve digits
	}
	return time.Unix(seconds, 0), nil
}
