package db

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Gone is the SQLSTATE of a Complete, a HoldKey, an AdvanceOperation, a KeepMessages or a KeepLanes that finds nothing to complete or to
// keep: division_by_zero. The server then does not reach a COMMIT behind the statement.
const Gone = "22012"

// Claim claims a key. If the key is not free, a Load behind the Claim reads its record.
type Claim struct {
	Key    *Key
	AtOnce bool // for a caller that may not wait for another, and for any number of claims in one transaction

	Claimed   bool
	CreatedAt time.Time
	Previous  string // the execution id of the claim that the transaction had made before, if it is AtOnce
}

// Queue adds the statement.
func (c *Claim) Queue(trip *roundtrip.Trip) {
	if c.AtOnce {
		q := claimAtOnce{Key: c.Key}
		q.Queue(trip)
		return
	}
	q := claim{Key: c.Key}
	q.Queue(trip)
}

// Read reads the answer.
func (c *Claim) Read(trip *roundtrip.Trip) {
	if c.AtOnce {
		var q claimAtOnce
		q.Read(trip)
		c.Claimed, c.CreatedAt, c.Previous = q.Found, q.CreatedAt, q.Previous
		return
	}
	var q claim
	q.Read(trip)
	c.Claimed, c.CreatedAt = q.Found, q.CreatedAt
}

// HolderOf returns the request that asks whether a transaction has the advisory lock of a claim.
func HolderOf(lock int64) Holder {
	return Holder{LockHigh: int64(uint64(lock) >> 32), LockLow: int64(uint32(lock))}
}
