package db

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// LetterName names a dead letter. Side is "outbox" or "inbox".
type LetterName struct {
	Side     string `json:"side"`
	Consumer string `json:"consumer,omitempty"`
	Source   string `json:"source"`
	ID       string `json:"id"`
}

// Letter is a dead letter.
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

// Contents are the stored payload and headers of a dead letter. If they are sealed, Payload holds
// both.
type Contents struct {
	Payload  []byte
	Headers  string // as WriteHeaders returns them
	SealedBy string
}

// Seal returns the contents sealed and bound to the name of the letter. It returns c if there is no
// Sealer or the Sealer leaves the contents plain.
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

// Open undoes Seal. A Sealer also receives plain contents, and may refuse them.
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

// bound returns the data that the contents of a dead letter are bound to. Databases hold contents
// that are bound to this format, so it must not change.
func (n LetterName) bound() []byte {
	return boundTo("idem.dead_letter/1", n.Side, n.Consumer, n.Source, n.ID)
}

// LetterName returns the name of the dead letter that the message becomes. The contents of the
// letter are bound to this name.
func (m *FailedMessage) LetterName() LetterName {
	return LetterName{"inbox", m.Consumer, m.Source, m.ID}
}
