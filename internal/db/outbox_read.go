package db

import (
	"math"

	"github.com/idem-go/idem/internal/roundtrip"
)

// ReadMessages reads messages of a stream. It leaves out the messages of held keys, which wait for
// a retry.
type ReadMessages struct {
	Stream      Stream
	Lows, Highs []int64  // the first and last positions of the gaps to read: ranges in which an earlier read found no message
	After       int64    // the position after which to read, in addition to the gaps
	Topics      []string // messages of these topics are read without Payload and Headers
	Only        bool     // reverses Topics: messages of all other topics are read without Payload and Headers
	Room        int
	Octets      int64

	Seqs     []int64 // the positions of all messages that were read, even if they belong to other streams
	Messages []Queued
}

func (r *ReadMessages) Queue(trip *roundtrip.Trip) {
	q := readMessages{Stream: r.Stream, Lows: r.Lows, Highs: r.Highs, Listed: r.Topics, OnlyListed: r.Only, Room: r.Room, After: r.After, Octets: r.Octets}
	q.Queue(trip)
}

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

// IsFull reports whether the result has reached Room or Octets. There may then be more messages.
func (r *ReadMessages) IsFull() bool {
	octets := int64(0)
	for i := range r.Messages {
		octets += int64(r.Messages[i].Octets)
	}
	return len(r.Seqs) > 0 && (len(r.Seqs) >= r.Room || octets >= r.Octets)
}

// ReadHeld reads the first messages of held keys.
type ReadHeld struct {
	Keys   []HeldKey
	Runs   []int // the maximum number of messages of each key
	Octets int64

	Messages []Queued
}

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

func (r *ReadHeld) Read(trip *roundtrip.Trip) {
	var q readHeld
	r.Messages = nil
	q.each(trip, func(message *Queued) { r.Messages = append(r.Messages, *message) })
}
