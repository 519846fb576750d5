package webhook

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"time"
)

// Verifier is the signature scheme of a provider. [StandardWebhooks], [Stripe] and [GitHub] are some.
type Verifier interface {
	// Verify returns the event that a request delivers if its signature is good, and otherwise an error, of which the other
	// side is told nothing. body is the whole body, as it came, and must not be changed. That of r is used up.
	//
	// A scheme that signs a time returns it, and leaves it to the Handler to say whether that was too long ago.
	Verify(r *http.Request, body []byte) (Event, error)
}

// Event is what a signature vouches for.
type Event struct {
	// ID is the provider's name for the event, the same in each delivery. A request whose event has none is refused: where a
	// provider gives none, see [ByContent].
	ID string

	// SentAt is when this delivery was signed. It is zero if the scheme signs no time.
	SentAt time.Time

	// Type is the provider's word for what has happened, if it is not in the body.
	Type string

	// Payload is what the event says. It is only for bodies which differ between deliveries of one event. Nil is the body.
	Payload []byte
}

// ErrSignature says that a request has no good signature.
var ErrSignature = errors.New("webhook: no good signature")

// ByContent is v with events that are known by what they say: the ID is a hash of the signed time, if there is one, and of the
// body. It is for providers who give events no ID, or none that is signed. Two events that say the same at the same time
// are one to it.
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
