package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// Message is a message to publish.
type Message struct {
	// ID is a UUID that never changes: a consumer recognizes a duplicate by it. Add sets the ID of
	// a message without one.
	ID string
	// Topic is where the message goes, in the terms of the broker.
	Topic string
	// Key is what the message is about. Messages of one topic and key are published in the order in
	// which they were added. Messages without a key have no order.
	Key string
	// Type says what has happened.
	Type    string
	Payload []byte
	Headers map[string]string

	// NotBefore delays the message until this time, by the clock of the database. A running relay
	// finds the message moments later and treats it as if it had been added then. So a delayed
	// message blocks no other message of its key, and messages that are added while no relay runs
	// are published before it. Delayed messages of one key that are due are published in the order
	// of NotBefore. The zero Time and past times delay nothing. A Publisher does not receive
	// NotBefore.
	NotBefore time.Time
}

// The limits of a message.
const (
	MaxName    = 255      // bytes of Topic, Key and Type, each
	MaxPayload = 16 << 20 // bytes
	MaxHeaders = 64 << 10 // bytes of all names and values together
)

// ErrInvalid is the error of Add and Queue for a message that cannot be stored. Retrying does not
// help.
var ErrInvalid = errors.New("outbox: the message is invalid")

// check returns what is wrong with m, except for its ID. The error contains nothing of the
// contents.
func (m *Message) check() error {
	if m.Topic == "" {
		return errors.New("the Topic is empty")
	}
	for _, part := range []struct{ name, text string }{{"Topic", m.Topic}, {"Key", m.Key}, {"Type", m.Type}} {
		switch {
		case len(part.text) > MaxName:
			return fmt.Errorf("the %s has %d bytes, the limit is %d", part.name, len(part.text), MaxName)
		case !isStorable(part.text):
			return fmt.Errorf("the %s is not valid UTF-8 or contains a NUL", part.name)
		}
	}
	if len(m.Payload) > MaxPayload {
		return fmt.Errorf("the Payload has %d bytes, the limit is %d", len(m.Payload), MaxPayload)
	}
	if year := m.NotBefore.UTC().Add(time.Second).Year(); year < 1 || year > 9999 {
		return errors.New("NotBefore is outside of the years 1 to 9999")
	}
	size := 0
	for name, value := range m.Headers {
		if !isStorable(name) || !isStorable(value) {
			return errors.New("a header is not valid UTF-8 or contains a NUL")
		}
		size += len(name) + len(value)
	}
	if size > MaxHeaders {
		return fmt.Errorf("the Headers have %d bytes, the limit is %d", size, MaxHeaders)
	}
	return nil
}

// isStorable reports whether a column of type text can store s.
func isStorable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// NewID returns a UUID of version 7. These begin with the time, so IDs of the same time are stored
// close together.
func NewID() string {
	var id [16]byte
	rand.Read(id[:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixMilli())<<16)
	copy(id[:6], at[:6])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return pgtype.UUID{Bytes: id, Valid: true}.String()
}

var errNotUUID = errors.New("the ID is not a UUID")

// canonicalID returns a UUID in the form in which the database returns it.
func canonicalID(id string) (string, error) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return "", errNotUUID
	}
	var uuid pgtype.UUID
	if err := uuid.Scan(id); err != nil {
		return "", errNotUUID
	}
	return uuid.String(), nil
}
