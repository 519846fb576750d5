package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Message is a message as a broker has delivered it.
type Message struct {
	// Source is where the message comes from, such as a topic, a stream or a provider. The same ID in
	// two sources means two messages. A Source, like the name of a consumer, has 1 to 512 bytes of
	// valid UTF-8 without control characters.
	Source string
	// ID is the producer's ID of the message, which is the same in each delivery. The rules for a
	// Source apply to it as well.
	ID string
	// Key groups messages whose order matters, such as the ID of a customer. See WithOrder.
	Key string
	// Type names the kind of event, and Headers are what the producer sent in addition to the payload.
	// Handlers receive both. Dead letters store the first 255 bytes of Type, and Headers of up to 64
	// KiB. Type and Headers do not identify a message: another delivery with another Type is a
	// duplicate.
	Type    string
	Headers map[string]string
	Payload []byte

	// Deliveries is how often the broker has delivered the message, including this delivery, or 0 if
	// the broker does not report it. From the second delivery on, each attempt is counted before it
	// begins, so that a message that kills its process becomes a dead letter. If the broker does not
	// report deliveries, set 2 for every message that may have been delivered before, such as the
	// first messages after a restart.
	Deliveries int
}

const maxName = 512

// checkName returns an error if a name is invalid. The error does not contain the name.
func checkName(what, name string) error {
	problem := ""
	switch control := strings.IndexFunc(name, unicode.IsControl); {
	case name == "":
		problem = "is empty"
	case len(name) > maxName:
		problem = fmt.Sprintf("has %d bytes, more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		problem = "is not valid UTF-8"
	case control >= 0:
		problem = fmt.Sprintf("has a control character at byte %d", control)
	default:
		return nil
	}
	return fmt.Errorf("%w: the %s %s", ErrInvalidName, what, problem)
}

// storedKey returns a key as it is stored. A key that is too long, or that Postgres cannot store,
// is replaced by its hash, because keys come from producers and need not follow any rule.
func storedKey(key string) string {
	if utf8.ValidString(key) && len(key) <= maxName && !strings.Contains(key, "\x00") {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// substituteID returns the ID of the dead letter of a message whose own ID is invalid or belongs to
// another message. The result is the same for each delivery.
func substituteID(id string, hash [32]byte) string {
	sum := sha256.New()
	sum.Write(hash[:])
	sum.Write([]byte(id))
	suffix := "#" + hex.EncodeToString(sum.Sum(nil)[:8])
	if checkName("ID", id) != nil || len(id)+len(suffix) > maxName {
		return suffix[1:]
	}
	return id + suffix
}

// Trace is the trace context of a message: its headers traceparent and tracestate, as the W3C
// defines them.
type Trace struct{ Parent, State string }

// traceOf returns the trace of a message that has one. It ignores the case of header names, because
// brokers may change the case.
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
