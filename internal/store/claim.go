package store

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// patience is how long a claim that may not wait does wait for somebody who is deleting the record. It lets a purge pass.
const patience = "20ms"

// MaxLocks is how many advisory locks the claims of one transaction take at most. The server has room for some thousands in
// all, and accepts no connection once that is used up.
const MaxLocks = 32

var (
	patienceValue = []byte(patience)
	maxLocksValue = strconv.AppendInt(nil, MaxLocks, 10)
)

// Claim takes a key. What it finds, if it does not, a Load after it tells.
type Claim struct {
	Key    *Key
	AtOnce bool // for whoever may not wait for anybody, and for any number of claims in one transaction

	Claimed   bool
	CreatedAt time.Time
	ExpiresAt time.Time
	Previous  string // the operation id of the claim that the transaction had made before, if it is AtOnce
}

// Queue adds the statement.
func (c *Claim) Queue(trip *roundtrip.Trip) {
	k := c.Key
	if c.AtOnce {
		trip.Add(claimAtOnce, k.scope, k.key, k.hash, k.operationID, k.ttl, patienceValue, k.lock, maxLocksValue)
		return
	}
	trip.Add(claim, k.scope, k.key, k.hash, k.operationID, k.ttl, k.lock)
}

// Read reads the answer.
func (c *Claim) Read(trip *roundtrip.Trip) {
	c.Claimed = trip.Row(func(row *roundtrip.Row) {
		c.CreatedAt, c.ExpiresAt = row.Time(), row.Time()
		if c.AtOnce {
			c.Previous = row.Text("")
		}
	})
}

// TakeOver claims a key whose record has expired.
type TakeOver struct {
	Key *Key

	Claimed   bool
	CreatedAt time.Time
	ExpiresAt time.Time
	Previous  string
}

// Queue adds the statement.
func (c *TakeOver) Queue(trip *roundtrip.Trip) {
	k := c.Key
	trip.Add(takeOver, k.scope, k.key, k.hash, k.operationID, k.ttl, patienceValue, k.lock)
}

// Read reads the answer.
func (c *TakeOver) Read(trip *roundtrip.Trip) {
	c.Claimed = trip.Row(func(row *roundtrip.Row) {
		c.CreatedAt, c.ExpiresAt = row.Time(), row.Time()
		c.Previous = row.Text("")
	})
}

// Calm puts lock_timeout back after an AtOnce Claim, or a TakeOver, that has claimed nothing.
type Calm struct{}

// Queue adds the statement.
func (Calm) Queue(trip *roundtrip.Trip) { trip.Add(calm) }

// Read reads the answer.
func (Calm) Read(trip *roundtrip.Trip) { trip.Skip() }

// Reclaim makes an earlier claim of the transaction the current one again.
type Reclaim struct{ OperationID string }

// Queue adds the statement.
func (r Reclaim) Queue(trip *roundtrip.Trip) { trip.Add(reclaim, []byte(r.OperationID)) }

// Read reads the answer.
func (Reclaim) Read(trip *roundtrip.Trip) { trip.Skip() }
