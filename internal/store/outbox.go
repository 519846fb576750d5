package store

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
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

// Writer is a transaction that can have a message in the outbox which is not committed yet. If it is Prepared, that is for COMMIT
// PREPARED, under a name that it had not before.
type Writer = db.ListWritersRow

// ListWriters lists the other transactions that can.
type ListWriters struct {
	Writers []Writer
}

// Queue adds the statement.
func (*ListWriters) Queue(trip *roundtrip.Trip) {
	var q db.ListWriters
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListWriters) Read(trip *roundtrip.Trip) {
	var q db.ListWriters
	q.Read(trip)
	l.Writers = append(l.Writers, q.Rows...)
}

// ReadMessages reads what is not held back.
type ReadMessages struct {
	Stream      Stream
	Lows, Highs []int64  // gaps, from one place to another
	After       int64    // the place beyond which it reads as well
	Topics      []string // whose messages come bare
	Only        bool     // the messages of all other topics come bare instead
	Room        int
	Octets      int64

	Seqs     []int64 // of all that was met
	Messages []Queued
}

// Queue adds the statement.
func (r *ReadMessages) Queue(trip *roundtrip.Trip) {
	s := &r.Stream
	q := db.ReadMessages{Streams: s.Of, Stream: s.Number, Every: s.every(), Topics: s.topics(), ForeignTopics: array(s.Foreign),
		Lows: numbers(r.Lows), Highs: numbers(r.Highs), Listed: array(r.Topics), OnlyListed: r.Only, Room: r.Room, After: r.After, Octets: r.Octets}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReadMessages) Read(trip *roundtrip.Trip) {
	var q db.ReadMessages
	q.Each(trip, func(row *db.ReadMessagesRow) {
		r.Seqs = append(r.Seqs, row.Seq)
		if !row.Mine {
			return
		}
		headers, err := ReadHeaders(row.Headers)
		trip.Fail(err)
		r.Messages = append(r.Messages, Queued{
			Seq: row.Seq, ID: row.ID, Topic: row.Topic, Key: row.Key, Type: row.Type, Payload: row.Payload, Headers: headers, CreatedAt: row.CreatedAt,
			Octets: row.Octets, Bare: !row.Whole,
		})
	})
}

// IsFull reports whether it has read as much as it may: there may be more.
func (r *ReadMessages) IsFull() bool {
	octets := int64(0)
	for i := range r.Messages {
		octets += int64(r.Messages[i].Octets)
	}
	return len(r.Seqs) > 0 && (len(r.Seqs) >= r.Room || octets >= r.Octets)
}

// HeldKey names what is held back together: the messages of a topic and key, or one message without a key, by its place.
type HeldKey struct {
	Topic, Key string
	Seq        int64
}

// ReadHeld reads the first messages of keys that are held back.
type ReadHeld struct {
	Keys   []HeldKey
	Runs   []int // how many messages of each key at most
	Octets int64

	Messages []Queued
}

// Queue adds the statement.
func (r *ReadHeld) Queue(trip *roundtrip.Trip) {
	topics, keys, lows, highs := make([]string, len(r.Keys)), make([]string, len(r.Keys)), make([]int64, len(r.Keys)), make([]int64, len(r.Keys))
	for i, key := range r.Keys {
		topics[i], keys[i], lows[i], highs[i] = key.Topic, key.Key, key.Seq, key.Seq
		if key.Key != "" {
			lows[i], highs[i] = 0, math.MaxInt64
		}
	}
	q := db.ReadHeld{Topics: array(topics), Keys: array(keys), Lows: numbers(lows), Highs: numbers(highs), Runs: numbers(r.Runs), Octets: r.Octets}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReadHeld) Read(trip *roundtrip.Trip) {
	var q db.ReadHeld
	q.Each(trip, func(row *db.ReadHeldRow) {
		headers, err := ReadHeaders(row.Headers)
		trip.Fail(err)
		r.Messages = append(r.Messages, Queued{
			Seq: row.Seq, ID: row.ID, Topic: row.Topic, Key: row.Key, Type: row.Type, Payload: row.Payload, Headers: headers, CreatedAt: row.CreatedAt,
			Attempts: row.Attempts, Octets: row.Octets,
		})
	})
}

// HeldBack tells how a key is held back.
type HeldBack struct {
	HeldKey
	Attempts int           // of its first message
	Due      time.Duration // until that is tried again
}

// ListHeld reads which keys are held back.
type ListHeld struct {
	Stream Stream

	Held []HeldBack
}

// Queue adds the statement.
func (l *ListHeld) Queue(trip *roundtrip.Trip) {
	s := &l.Stream
	q := db.ListHeld{Streams: s.Of, Stream: s.Number, Every: s.every(), Topics: s.topics(), ForeignTopics: array(s.Foreign)}
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListHeld) Read(trip *roundtrip.Trip) {
	var q db.ListHeld
	q.Each(trip, func(row *db.ListHeldRow) {
		l.Held = append(l.Held, HeldBack{
			HeldKey: HeldKey{row.Topic, row.Key, row.Place}, Attempts: row.Attempts, Due: time.Duration(row.Due) * time.Microsecond,
		})
	})
}
