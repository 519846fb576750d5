package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
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
	q := db.Complete{Scope: k.scope, Key: k.key, ExecutionID: k.ExecutionID, State: string(c.State), Status: c.Status,
		Header: c.Header, Body: c.Body, SealedBy: orNull(c.SealedBy), TTL: k.ttl}
	q.Queue(trip)
}

// Read reads the answer.
func (c *Complete) Read(trip *roundtrip.Trip) {
	var q db.Complete
	q.Read(trip)
	c.Recorded, c.CompletedAt, c.ExpiresAt = q.Found, q.Row.CompletedAt, q.Row.ExpiresAt
}
