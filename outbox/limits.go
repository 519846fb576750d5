package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// What a message may have.
const (
	MaxName    = 255      // bytes of Topic, Key and Type, each
	MaxPayload = 16 << 20 // bytes
	MaxHeaders = 64 << 10 // bytes of all headers together
)

// ErrInvalid is the error of a message that cannot be added, whatever is tried.
var ErrInvalid = errors.New("outbox: the message is invalid")

// check returns what is wrong with a message, but for its ID. It never tells what is in the message.
func (m *Message) check() error {
	if m.Topic == "" {
		return errors.New("it has no Topic")
	}
	for _, part := range []struct{ name, text string }{{"Topic", m.Topic}, {"Key", m.Key}, {"Type", m.Type}} {
		switch {
		case len(part.text) > MaxName:
			return fmt.Errorf("its %s has %d bytes, the limit is %d", part.name, len(part.text), MaxName)
		case !storable(part.text):
			return fmt.Errorf("its %s is not valid UTF-8 or holds a NUL", part.name)
		}
	}
	if len(m.Payload) > MaxPayload {
		return fmt.Errorf("its payload has %d bytes, the limit is %d", len(m.Payload), MaxPayload)
	}
	if year := m.NotBefore.UTC().Add(time.Second).Year(); year < 1 || year > 9999 {
		return errors.New("its NotBefore is not of the years 1 to 9999")
	}
	size := 0
	for name, value := range m.Headers {
		if !storable(name) || !storable(value) {
			return errors.New("a header is not valid UTF-8 or holds a NUL")
		}
		size += len(name) + len(value)
	}
	if size > MaxHeaders {
		return fmt.Errorf("its headers have %d bytes, the limit is %d", size, MaxHeaders)
	}
	return nil
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
