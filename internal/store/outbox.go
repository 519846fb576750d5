package store

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

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
	Attempts  int // that have failed
}

func (q *Queued) read(row *roundtrip.Row) {
	q.ID, q.Topic, q.Key, q.Type = row.Text(), row.Text(), row.Text(), row.Text()
	q.Payload = row.Bytes()
	var err error
	q.Headers, err = ReadHeaders(row.Text())
	row.Fail(err)
	q.CreatedAt = row.Time()
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

func (s *Stream) params() [][]byte {
	every := s.Topics == nil && len(s.Foreign) == 0
	topics := s.Topics
	if topics == nil {
		topics = []string{"%"}
	}
	return [][]byte{number(s.Of), number(s.Number), boolean(every), array(topics), array(s.Foreign)}
}

// Writer is a transaction that can have a message in the outbox which is not committed yet.
type Writer struct {
	Name     string
	Prepared bool // for COMMIT PREPARED, under a name that it had not before
}

// ListWriters lists the other transactions that can.
type ListWriters struct {
	Writers []Writer
}

// Queue adds the statement.
func (*ListWriters) Queue(trip *roundtrip.Trip) { trip.Add(listWriters) }

// Read reads the answer.
func (l *ListWriters) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		l.Writers = append(l.Writers, Writer{Name: row.Text(), Prepared: row.Bool()})
	})
}

// ReadMessages reads what is not held back.
type ReadMessages struct {
	Stream      Stream
	Lows, Highs []int64 // gaps, from one place to another
	After       int64   // the place beyond which it reads as well
	Room        int
	Octets      int64

	Seqs     []int64 // of all that was met
	Messages []Queued
}

// Queue adds the statement.
func (r *ReadMessages) Queue(trip *roundtrip.Trip) {
	trip.Add(readMessages, append(r.Stream.params(), numbers(r.Lows), numbers(r.Highs), number(r.Room), integer(r.After),
		integer(r.Octets))...)
}

// Read reads the answer.
func (r *ReadMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		seq, mine := int64(row.Int()), row.Bool()
		r.Seqs = append(r.Seqs, seq)
		if mine {
			r.Messages = append(r.Messages, Queued{Seq: seq})
			r.Messages[len(r.Messages)-1].read(row)
		}
	})
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
	trip.Add(readHeld, array(topics), array(keys), numbers(lows), numbers(highs), numbers(r.Runs), integer(r.Octets))
}

// Read reads the answer.
func (r *ReadHeld) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		q := Queued{Seq: int64(row.Int())}
		q.read(row)
		q.Attempts = row.Int()
		r.Messages = append(r.Messages, q)
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
	trip.Add(listHeld, l.Stream.params()...)
}

// Read reads the answer.
func (l *ListHeld) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		held := HeldBack{HeldKey: HeldKey{row.Text(), row.Text(), int64(row.Int())}, Attempts: row.Int()}
		held.Due = time.Duration(row.Int()) * time.Microsecond
		l.Held = append(l.Held, held)
	})
}

// numbers writes numbers as an array of Postgres.
func numbers[N int | int64](list []N) []byte {
	b := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return append(b, '}')
}
