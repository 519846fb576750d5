package db

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// LetterName identifies a dead letter. Side is "outbox" or "inbox".
type LetterName struct {
	Side     string `json:"side"`
	Consumer string `json:"consumer,omitempty"`
	Source   string `json:"source"`
	ID       string `json:"id"`
}

// Letter is a stored dead letter: a message that is not tried again until a person decides.
type Letter struct {
	LetterName
	Key      string
	Type     string
	Contents Contents
	Class    string
	Reason   string
	Attempts int

	CreatedAt, DiedAt time.Time
}

// Contents are the payload and the headers of a dead letter in their stored form. If they are
// sealed, Payload has both of them, and Headers is empty.
type Contents struct {
	Payload  []byte
	Headers  string // as WriteHeaders returns them
	SealedBy string
}

// Seal returns the contents in sealed form, bound to the name of the letter: Open needs the same
// name. If s is nil, or the Sealer leaves the contents plain, Seal returns c.
func (c Contents) Seal(s Sealer, name LetterName) (Contents, error) {
	if s == nil {
		return c, nil
	}
	keyID, sealed, err := s.Seal(joinResponse([]byte(c.Headers), c.Payload), name.bound())
	switch {
	case err != nil:
		return Contents{}, fmt.Errorf("a dead letter could not be sealed: %w", err)
	case keyID == "":
		return c, nil
	case len(keyID) > 255 || !utf8.ValidString(keyID) || strings.Contains(keyID, "\x00"):
		return Contents{}, errors.New("the Sealer's key id cannot be stored: it has up to 255 bytes of UTF-8, without NUL")
	}
	return Contents{Payload: sealed, SealedBy: keyID}, nil
}

// Open returns the plain contents of a letter. It also passes contents that are not sealed to the
// Sealer, which may refuse them.
func (c Contents) Open(s Sealer, name LetterName) (Contents, error) {
	switch {
	case c.SealedBy == "" && s == nil:
		return c, nil
	case c.SealedBy == "":
		_, err := s.Open("", c.Payload, name.bound())
		return c, err
	case s == nil:
		return c, fmt.Errorf("it is sealed with the key %.64q, and there is no Sealer", c.SealedBy)
	case c.Headers != "":
		return c, errors.New("it is sealed, and headers were put beside it")
	}
	plain, err := s.Open(c.SealedBy, c.Payload, name.bound())
	if err != nil {
		return c, err
	}
	headers, payload, err := splitResponse(plain)
	return Contents{Payload: payload, Headers: string(headers)}, err
}

// bound returns the data to which a Sealer binds the contents of a dead letter. The format of the
// data must not change, because databases have contents that were sealed with it.
func (n LetterName) bound() []byte {
	return boundTo("idem.dead_letter/1", n.Side, n.Consumer, n.Source, n.ID)
}

// LetterName returns the name of the dead letter that the message becomes. If the contents of the
// dead letter are sealed, they are bound to this name.
func (m *FailedMessage) LetterName() LetterName {
	return LetterName{"inbox", m.Consumer, m.Source, m.ID}
}
