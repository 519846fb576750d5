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
	// Topic says where the message goes. The Publisher interprets it, for example as a topic, a
	// subject or a queue of a broker.
	Topic string
	// Key identifies the object that the message is about, such as an order. Messages of one topic and
	// key are published in the order in which they were added. Messages without a key have no order.
	Key string
	// Type names the kind of event, such as OrderPlaced.
	Type    string
	Payload []byte
	Headers map[string]string

	// NotBefore delays the message until this time, by the clock of the database. When a message is
	// due, a running relay treats it as if it had just been added. So a delayed message does not block
	// other messages of its key. If no relay runs when it is due, messages that are added before a
	// relay starts are published before it. Delayed messages of one key that are due are published in
	// the order of NotBefore. The zero Time and past times delay nothing. The relay passes messages to
	// a Publisher without NotBefore.
	NotBefore time.Time
}

// The limits of a message.
const (
	MaxName    = 255      // maximum length in bytes of Topic, of Key and of Type
	MaxPayload = 16 << 20 // maximum length in bytes
	MaxHeaders = 64 << 10 // maximum length in bytes of all names and values together
)

// ErrInvalid is the error of Add and Queue for a message that cannot be stored. Retrying does not
// help.
var ErrInvalid = errors.New("outbox: the message is invalid")

// check returns an error if a field of m other than the ID is invalid. The error contains no
// contents of the message.
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

// NewID returns a UUID of version 7. It begins with the current time, so IDs of about the same time
// are close together in an index.
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
