package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Message is what a broker has delivered.
type Message struct {
	// Source is where it comes from: a topic, a stream, a provider. The ID of a message is one of its source. It has 1 to 512
	// bytes of valid UTF-8 without control characters, as the name of a consumer does.
	Source string
	// ID is the producer's name for the message, the same in each delivery. It is held to the same rules.
	ID string
	// Key is what it is about, for who wants the messages of one key in order.
	Key string
	// Type says what has happened, and Headers are what the producer has put beside the payload. They are for the handler, and are
	// kept with a dead letter: of Type the first 255 bytes, Headers if they have no more than 64 KiB. A message is not known by
	// them: another delivery with others is a duplicate.
	Type    string
	Headers map[string]string
	Payload []byte

	// Deliveries is how often the broker has delivered the message, this time included; 0 if it does not say. From the second
	// time on, the message is tried alone and each attempt is counted before it begins, so that a message that kills its process
	// becomes a dead letter. A consumer of a broker that does not say gives 2 for every message that may have been delivered
	// before, such as those that it reads first after a restart.
	Deliveries int
}

const maxName = 512

// checkName tells which rule a name breaks. It never shows the name.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > maxName:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidName, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalidName)
	}
	if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%w: it has a control character at byte %d", ErrInvalidName, i)
	}
	return nil
}

// storable is a key as it is stored: it comes from strangers, and is not held to any rule.
func storable(key string) string {
	if utf8.ValidString(key) && len(key) <= maxName && !strings.Contains(key, "\x00") {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// anotherID is the id of the dead letter of a message that cannot have its own, because another message has it, or because it
// breaks a rule. It is the same in each delivery.
func anotherID(id string, hash [32]byte) string {
	sum := sha256.New()
	sum.Write(hash[:])
	sum.Write([]byte(id))
	suffix := "#" + hex.EncodeToString(sum.Sum(nil)[:8])
	if checkName(id) != nil || len(id)+len(suffix) > maxName {
		return suffix[1:]
	}
	return id + suffix
}

// Trace is the trace context of a message: its headers traceparent and tracestate, as the W3C defines them.
type Trace struct{ Parent, State string }

// traceOf returns the trace of a message, if it carries one. Brokers change the case of headers.
func traceOf(m *Message) (t Trace, ok bool) {
	for name, value := range m.Headers {
		switch {
		case strings.EqualFold(name, "traceparent"):
			t.Parent = value
		case strings.EqualFold(name, "tracestate"):
			t.State = value
		}
	}
	return t, t.Parent != ""
}
