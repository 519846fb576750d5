package db

import (
	"math"

	"github.com/idem-go/idem/internal/roundtrip"
)

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
	q := readMessages{Stream: r.Stream, Lows: r.Lows, Highs: r.Highs, Listed: r.Topics, OnlyListed: r.Only, Room: r.Room, After: r.After, Octets: r.Octets}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReadMessages) Read(trip *roundtrip.Trip) {
	var q readMessages
	r.Seqs, r.Messages = nil, nil
	q.each(trip, func(row *readMessagesRow) {
		r.Seqs = append(r.Seqs, row.Seq)
		if row.Mine {
			row.Bare = !row.Whole
			r.Messages = append(r.Messages, row.Queued)
		}
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
	q := readHeld{Topics: topics, Keys: keys, Lows: lows, Highs: highs, Runs: r.Runs, Octets: r.Octets}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReadHeld) Read(trip *roundtrip.Trip) {
	var q readHeld
	r.Messages = nil
	q.each(trip, func(message *Queued) { r.Messages = append(r.Messages, *message) })
}
