package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/roundtrip"
)

// LetterName names a dead letter. Side is "outbox" or "inbox".
type LetterName struct{ Side, Consumer, Source, ID string }

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

// Contents are payload and headers of a dead letter as they are stored. Sealed, both are in the payload.
type Contents struct {
	Payload  []byte
	Headers  string // as WriteHeaders makes them
	SealedBy string
}

// Seal returns contents sealed, unless there is no Sealer or it leaves them plain. They are bound to the name of the letter.
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

// Open undoes Seal. What is plain is given to the Sealer as well, if there is one: it has to let it pass.
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
		return c, errors.New("it is sealed, and somebody has put headers beside it")
	}
	plain, err := s.Open(c.SealedBy, c.Payload, name.bound())
	if err != nil {
		return c, err
	}
	headers, payload, err := splitResponse(plain)
	return Contents{Payload: payload, Headers: string(headers)}, err
}

// bound is what the contents of a dead letter are bound to. It is frozen, because databases hold it.
func (n LetterName) bound() []byte {
	return boundTo("idem.dead_letter/1", n.Side, n.Consumer, n.Source, n.ID)
}

// read reads what comes after the name. Contents are not among it, but for who has sealed them, unless whole says so.
func (l *Letter) read(row *roundtrip.Row, whole bool) {
	l.Key, l.Type = row.Text(), row.Text()
	if whole {
		l.Contents.Payload, l.Contents.Headers = row.Bytes(), row.Text()
	}
	l.Contents.SealedBy, l.Class, l.Reason, l.Attempts = row.Text(), row.Text(), row.Text(), row.Int()
	l.CreatedAt, l.DiedAt = row.Time(), row.Time()
}

// ListLetters lists dead letters without their contents, in the order of their names. What is empty in Only does not matter.
type ListLetters struct {
	Only  LetterName
	After LetterName
	Room  int

	Letters []Letter
}

// Queue adds the statement.
func (l *ListLetters) Queue(trip *roundtrip.Trip) {
	trip.Add(listDeadLetters, []byte(l.Only.Side), []byte(l.Only.Consumer), []byte(l.Only.Source),
		[]byte(l.After.Side), []byte(l.After.Consumer), []byte(l.After.Source), []byte(l.After.ID), number(l.Room))
}

// Read reads the answer.
func (l *ListLetters) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		letter := Letter{LetterName: LetterName{row.Text(), row.Text(), row.Text(), row.Text()}}
		letter.read(row, false)
		l.Letters = append(l.Letters, letter)
	})
}

// ReadLetter reads a dead letter. Take removes it as well.
type ReadLetter struct {
	Name LetterName
	Take bool

	Found  bool
	Letter Letter
}

// Queue adds the statement.
func (r *ReadLetter) Queue(trip *roundtrip.Trip) {
	statement := showDeadLetter
	if r.Take {
		statement = takeDeadLetter
	}
	trip.Add(statement, []byte(r.Name.Side), []byte(r.Name.Consumer), []byte(r.Name.Source), []byte(r.Name.ID))
}

// Read reads the answer.
func (r *ReadLetter) Read(trip *roundtrip.Trip) {
	r.Letter = Letter{LetterName: r.Name}
	r.Found = trip.Row(func(row *roundtrip.Row) { r.Letter.read(row, true) })
}
