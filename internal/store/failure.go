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

// CountFailure counts an attempt that has failed.
type CountFailure struct {
	FailedMessage
	Attempts int // how many are to be counted
	Pause    time.Duration

	Counted bool // false: it is handled or dead
	Total   int
}

// Queue adds the statement.
func (c *CountFailure) Queue(trip *roundtrip.Trip) {
	trip.Add(countFailure, []byte(c.Consumer), []byte(c.Source), []byte(c.ID), c.Hash[:], microseconds(c.Retention),
		number(c.Attempts), microseconds(c.Pause), []byte(c.Key))
}

// Read reads the answer.
func (c *CountFailure) Read(trip *roundtrip.Trip) {
	c.Counted = trip.Row(func(row *roundtrip.Row) { c.Total = row.Int() })
}

// BuryMessage makes a message a dead letter.
type BuryMessage struct {
	FailedMessage
	Attempts      int // all of them
	Payload       []byte
	SealedBy      string // the key that Payload is sealed with; empty if it is plain
	Class, Reason string

	Buried bool // false: it is handled or dead
}

// Seal seals the payload, unless the Sealer leaves it plain.
func (b *BuryMessage) Seal(s Sealer) error {
	c, err := Contents{Payload: b.Payload}.Seal(s, LetterName{"inbox", b.Consumer, b.Source, b.ID})
	if err == nil {
		b.Payload, b.SealedBy = c.Payload, c.SealedBy
	}
	return err
}

// Queue adds the statement.
func (b *BuryMessage) Queue(trip *roundtrip.Trip) {
	var sealedBy []byte
	if b.SealedBy != "" {
		sealedBy = []byte(b.SealedBy)
	}
	trip.Add(buryMessage, []byte(b.Key), b.Payload, sealedBy, []byte(b.Class), []byte(b.Reason), strconv.AppendInt(nil, int64(b.Attempts), 10),
		[]byte(b.Consumer), []byte(b.Source), []byte(b.ID), b.Hash[:], microseconds(b.Retention))
}

// Read reads the answer.
func (b *BuryMessage) Read(trip *roundtrip.Trip) {
	b.Buried = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}
