package store

import (
	"strconv"
	"time"

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

// CountFailure counts an attempt that has failed, or was hindered.
type CountFailure struct {
	FailedMessage
	Attempts int // how many are to be counted as failed
	Hindered int // and how many as hindered
	Pause    time.Duration

	Counted bool // false: it is handled or dead
	Total   int
}

// Queue adds the statement.
func (c *CountFailure) Queue(trip *roundtrip.Trip) {
	trip.Add(countFailure, []byte(c.Consumer), []byte(c.Source), []byte(c.ID), c.Hash[:], microseconds(c.Retention),
		number(c.Attempts), number(c.Hindered), microseconds(c.Pause), []byte(c.Key))
}

// Read reads the answer.
func (c *CountFailure) Read(trip *roundtrip.Trip) {
	c.Counted = trip.Row(func(row *roundtrip.Row) { c.Total = row.Int() })
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
	trip.Add(buryMessage, []byte(b.Key), []byte(b.Type), b.Contents.Payload, orNull(b.Contents.Headers), orNull(b.Contents.SealedBy),
		[]byte(b.Class), []byte(b.Reason), strconv.AppendInt(nil, int64(b.Attempts), 10), []byte(b.Consumer), []byte(b.Source), []byte(b.ID),
		b.Hash[:], microseconds(b.Retention))
}

// Read reads the answer.
func (b *BuryMessage) Read(trip *roundtrip.Trip) {
	b.Buried = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}
