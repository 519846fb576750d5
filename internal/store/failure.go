package store

import (
	"fmt"
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

// Seal seals the payload, unless the Sealer leaves it plain. As in every dead letter, headers go with it: it has none.
func (b *BuryMessage) Seal(s Sealer) error {
	if s == nil {
		return nil
	}
	keyID, sealed, err := s.Seal(joinResponse(nil, b.Payload), BoundLetter("inbox", b.Consumer, b.Source, b.ID))
	if err != nil || keyID == "" {
		return err
	}
	b.Payload, b.SealedBy = sealed, keyID
	return nil
}

// BoundLetter is what the payload of a dead letter is bound to. It is frozen.
func BoundLetter(side, consumer, source, id string) []byte {
	return boundTo("idem.dead_letter/1", side, consumer, source, id)
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

// OpenLetter returns the payload of a dead letter. What is plain is given to the Sealer as well, if there is one: it has to let it
// pass.
func OpenLetter(s Sealer, payload []byte, sealedBy string, bound []byte) ([]byte, error) {
	switch {
	case sealedBy == "" && s == nil:
		return payload, nil
	case sealedBy == "":
		return s.Open("", payload, bound)
	case s == nil:
		return nil, fmt.Errorf("it is sealed with the key %.64q, and there is no Sealer", sealedBy)
	}
	joined, err := s.Open(sealedBy, payload, bound)
	if err != nil {
		return nil, err
	}
	_, payload, err = splitResponse(joined)
	return payload, err
}
