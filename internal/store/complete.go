package store

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Complete records the outcome of a claim. If this transaction is not the one that claimed, or the record is gone, the
// server answers with the SQLSTATE Gone, and a COMMIT behind it is not reached.
type Complete struct {
	Key    *Key
	State  State
	Status int
	Header []byte // as EncodeHeader returns it
	Body   []byte

	SealedBy string // the key that Body is sealed with, which then has the header as well; empty if they are plain

	Recorded    bool
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Gone is the SQLSTATE of a Complete that finds no claim to complete: division_by_zero.
const Gone = "22012"

// Queue adds the statement.
func (c *Complete) Queue(trip *roundtrip.Trip) {
	k := c.Key
	var sealedBy []byte
	if c.SealedBy != "" {
		sealedBy = []byte(c.SealedBy)
	}
	trip.Add(complete, k.scope, k.key, k.operationID, []byte(c.State), strconv.AppendInt(nil, int64(c.Status), 10),
		c.Header, c.Body, sealedBy, k.ttl)
}

// Read reads the answer.
func (c *Complete) Read(trip *roundtrip.Trip) {
	c.Recorded = trip.Row(func(row *roundtrip.Row) {
		c.CompletedAt, c.ExpiresAt = row.Time(), row.Time()
	})
}
