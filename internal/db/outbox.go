package db

import (
	"encoding/json"
	"fmt"
	"time"
)

// Queued is a message in the outbox.
type Queued struct {
	Seq       int64 // the position of the message in the outbox
	ID        string
	Topic     string
	Key       string
	Type      string
	Payload   []byte
	Headers   map[string]string
	CreatedAt time.Time
	Attempts  int  // failed attempts
	Octets    int  // the stored size of Payload and Headers in bytes
	Bare      bool // the message was read without Payload and Headers
}

// WriteHeaders returns the stored form of the headers of a message: a JSON object, or "" without
// headers.
func WriteHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// ReadHeaders decodes the result of WriteHeaders.
func ReadHeaders(text string) (headers map[string]string, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("the headers of a message: %w", err)
	}
	return headers, nil
}

// Stream is the part of the outbox that one loop of a relay reads. The lanes (see Lanes) are
// divided among Of streams, and Number says which of them this stream is. Topics and Foreign select
// the topics of the relay.
type Stream struct {
	Number, Of int
	Topics     []string // LIKE patterns of the topics of the relay; nil means all topics
	Foreign    []string // LIKE patterns of the topics that belong to other relays
}

// every reports whether the stream selects all topics.
func (s *Stream) every() bool { return s.Topics == nil && len(s.Foreign) == 0 }

func (s *Stream) topics() string {
	if s.Topics == nil {
		return array([]string{"%"})
	}
	return array(s.Topics)
}

func (s *Stream) foreign() string { return array(s.Foreign) }

// Lanes is the number of lanes of the outbox. A lane is a group of keys. The lane of a key never
// changes.
const Lanes = 16

// HeldKey identifies messages that wait together for the retry of the first of them: the messages
// of one topic and key. If Key is empty, HeldKey identifies the single message at the position Seq.
type HeldKey struct {
	Topic, Key string
	Seq        int64
}

// WriteMoment returns the stored form of a time, or "" for the zero time. It rounds up to a
// microsecond, the precision of the database, so that the stored time is never earlier than at.
func WriteMoment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// momentOrFirst is WriteMoment, except that it returns "-infinity" for the zero time.
func momentOrFirst(at time.Time) string {
	if at.IsZero() {
		return "-infinity"
	}
	return WriteMoment(at)
}
