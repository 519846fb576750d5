package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// What happens to messages after an attempt to publish them.

// DeletePublished removes messages that were published.
type DeletePublished struct{ Seqs []int64 }

// Queue adds the statement.
func (d DeletePublished) Queue(trip *roundtrip.Trip) {
	db.DeletePublished{Seqs: numbers(d.Seqs)}.Queue(trip)
}

// Read reads the answer.
func (DeletePublished) Read(trip *roundtrip.Trip) { trip.Skip() }

// KeepPublished moves messages that were published to where they are kept for a time.
type KeepPublished struct {
	Seqs      []int64
	Retention time.Duration
	Whole     bool // with payload and headers
}

// Queue adds the statement.
func (k KeepPublished) Queue(trip *roundtrip.Trip) {
	db.KeepPublished{Retention: k.Retention, Whole: k.Whole, Seqs: numbers(k.Seqs)}.Queue(trip)
}

// Read reads the answer.
func (KeepPublished) Read(trip *roundtrip.Trip) { trip.Skip() }

// HoldMessages holds messages back because they are behind another one of their key.
type HoldMessages struct{ Seqs []int64 }

// Queue adds the statement.
func (h HoldMessages) Queue(trip *roundtrip.Trip) { db.HoldMessages{Seqs: numbers(h.Seqs)}.Queue(trip) }

// Read reads the answer.
func (HoldMessages) Read(trip *roundtrip.Trip) { trip.Skip() }

// BlameMessages counts failed attempts of each message, and holds it back.
type BlameMessages struct {
	Seqs             []int64
	Pauses           []time.Duration
	Counts           []int // 1, or 0 if its destination is away
	Classes, Reasons []string
}

// Queue adds the statement.
func (b BlameMessages) Queue(trip *roundtrip.Trip) {
	pauses := make([]int64, len(b.Pauses))
	for i, pause := range b.Pauses {
		pauses[i] = pause.Microseconds()
	}
	db.BlameMessages{Seqs: numbers(b.Seqs), Pauses: numbers(pauses), Counts: numbers(b.Counts),
		Classes: array(b.Classes), Reasons: array(b.Reasons)}.Queue(trip)
}

// Read reads the answer.
func (BlameMessages) Read(trip *roundtrip.Trip) { trip.Skip() }

// BuryUnpublished makes a message a dead letter, with what it says in the form in which that is to be kept.
type BuryUnpublished struct {
	Seq      int64
	Contents Contents
	Class    string
	Reason   string
	Attempts int
}

// Queue adds the statement.
func (b BuryUnpublished) Queue(trip *roundtrip.Trip) {
	db.BuryUnpublished{Payload: b.Contents.Payload, Headers: orNull(b.Contents.Headers), SealedBy: orNull(b.Contents.SealedBy),
		Class: b.Class, Reason: b.Reason, Attempts: b.Attempts, Seq: b.Seq}.Queue(trip)
}

// Read reads the answer.
func (BuryUnpublished) Read(trip *roundtrip.Trip) { trip.Skip() }
