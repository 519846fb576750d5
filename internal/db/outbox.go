package db

import (
	"encoding/json"
	"fmt"
	"time"
)

// Queued is a message in the outbox.
type Queued struct {
	Seq       int64 // its place
	ID        string
	Topic     string
	Key       string
	Type      string
	Payload   []byte
	Headers   map[string]string
	CreatedAt time.Time
	Attempts  int  // that have failed
	Octets    int  // of Payload and Headers, as they are stored
	Bare      bool // it was read without Payload and Headers
}

// WriteHeaders returns the headers of a message as they are stored: a JSON object, or nothing if there are none.
func WriteHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// ReadHeaders undoes WriteHeaders.
func ReadHeaders(text string) (headers map[string]string, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("the headers of a message: %w", err)
	}
	return headers, nil
}

// Stream is a part of the outbox: the stream of a number, of so many, and of it the topics of one relay.
type Stream struct {
	Number, Of int
	Topics     []string // patterns of LIKE; nil means all topics
	Foreign    []string // patterns of topics that belong to other relays
}

// every reports whether all topics are of the stream.
func (s *Stream) every() bool { return s.Topics == nil && len(s.Foreign) == 0 }

// topics are the patterns of its topics, as an array.
func (s *Stream) topics() string {
	if s.Topics == nil {
		return array([]string{"%"})
	}
	return array(s.Topics)
}

func (s *Stream) foreign() string { return array(s.Foreign) }

// Lanes is in how many parts the outbox falls. A key belongs to one of them for good.
const Lanes = 16

// HeldKey names what is held back together: the messages of a topic and key, or one message without a key, by its place.
type HeldKey struct {
	Topic, Key string
	Seq        int64
}

// WriteMoment returns a moment as it is stored, which is not before it: a microsecond is the least that the database knows.
func WriteMoment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// momentOrFirst is WriteMoment, and the first of all moments for the zero time.
func momentOrFirst(at time.Time) string {
	if at.IsZero() {
		return "-infinity"
	}
	return WriteMoment(at)
}
