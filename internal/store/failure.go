package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// FailedMessage is a message whose handler has failed.
type FailedMessage struct {
	Consumer string
	MessageID
	Hash      [32]byte
	Key       string
	Retention time.Duration
}

// CountFailure records the end of an attempt that has failed, or was hindered.
type CountFailure struct {
	FailedMessage
	Attempts int // what is added to the count of attempts: -1, 0 or 1
	Hindered int // and to that of attempts that were hindered
	Pause    time.Duration

	Counted bool // false: it is handled or dead
	Total   int
}

// Queue adds the statement.
func (c *CountFailure) Queue(trip *roundtrip.Trip) {
	q := db.CountFailure{Consumer: c.Consumer, Source: c.Source, ID: c.ID, Hash: c.Hash[:], Retention: c.Retention,
		Attempts: c.Attempts, Hindered: c.Hindered, Pause: c.Pause, Key: c.Key}
	q.Queue(trip)
}

// Read reads the answer.
func (c *CountFailure) Read(trip *roundtrip.Trip) {
	var q db.CountFailure
	q.Read(trip)
	c.Counted, c.Total = q.Found, q.Row.Attempts
}

// BuryMessage makes a message a dead letter.
type BuryMessage struct {
	FailedMessage
	Attempts      int // all of them
	Type          string
	Contents      Contents
	Class, Reason string

	Buried bool // false: it is handled or dead
}

// Name is that of the dead letter, to which its contents are bound.
func (b *BuryMessage) Name() LetterName { return LetterName{"inbox", b.Consumer, b.Source, b.ID} }

// Queue adds the statement.
func (b *BuryMessage) Queue(trip *roundtrip.Trip) {
	q := db.BuryMessage{Key: b.Key, Type: b.Type, Payload: b.Contents.Payload, Headers: orNull(b.Contents.Headers),
		SealedBy: orNull(b.Contents.SealedBy), Class: b.Class, Reason: b.Reason, Attempts: b.Attempts,
		Consumer: b.Consumer, Source: b.Source, ID: b.ID, Hash: b.Hash[:], Retention: b.Retention}
	q.Queue(trip)
}

// Read reads the answer.
func (b *BuryMessage) Read(trip *roundtrip.Trip) {
	var q db.BuryMessage
	q.Read(trip)
	b.Buried = q.Found
}
