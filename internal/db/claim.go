package db

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Gone is the SQLSTATE division_by_zero. Complete, HoldKey, AdvanceOperation, KeepMessages and
// KeepLanes divide by zero if the caller has lost the claim, the operation or the lanes that the
// statement needs. The server then does not execute a COMMIT that was sent after the statement.
const Gone = "22012"

// Claim claims a key. If the key is not free, a Load after the Claim reads its record.
type Claim struct {
	Key    *Key
	AtOnce bool // for callers that must not wait for another transaction, or that claim several keys in one transaction

	Claimed   bool
	CreatedAt time.Time
	Previous  string // with AtOnce, the execution id of the previous claim in the transaction, for Reclaim
}

func (c *Claim) Queue(trip *roundtrip.Trip) {
	if c.AtOnce {
		q := claimAtOnce{Key: c.Key}
		q.Queue(trip)
		return
	}
	q := claim{Key: c.Key}
	q.Queue(trip)
}

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

// HolderOf returns the request that reads whether a transaction holds the advisory lock of a claim.
func HolderOf(lock int64) Holder {
	return Holder{LockHigh: int64(uint64(lock) >> 32), LockLow: int64(uint32(lock))}
}
