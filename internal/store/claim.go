package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// patience is how long a claim that may not wait does wait for a session that is deleting the record. It lets a purge pass.
const patience = "20ms"

// MaxLocks is how many advisory locks the claims of one transaction take at most. The server has room for some thousands in
// all, and accepts no connection once that is used up.
const MaxLocks = 32

// Claim takes a key. What it finds, if it does not, a Load after it tells.
type Claim struct {
	Key    *Key
	AtOnce bool // for a caller that may not wait for another, and for any number of claims in one transaction

	Claimed   bool
	CreatedAt time.Time
	Previous  string // the execution id of the claim that the transaction had made before, if it is AtOnce
}

// Queue adds the statement.
func (c *Claim) Queue(trip *roundtrip.Trip) {
	k := c.Key
	if c.AtOnce {
		q := db.ClaimAtOnce{Scope: k.scope, Key: k.key, Hash: k.hash[:], ExecutionID: k.ExecutionID, TTL: k.ttl,
			Patience: patience, Lock: k.claimsLock(), MaxLocks: MaxLocks}
		q.Queue(trip)
		return
	}
	q := db.Claim{Scope: k.scope, Key: k.key, Hash: k.hash[:], ExecutionID: k.ExecutionID, TTL: k.ttl, Lock: k.claimsLock()}
	q.Queue(trip)
}

// Read reads the answer.
func (c *Claim) Read(trip *roundtrip.Trip) {
	if c.AtOnce {
		var q db.ClaimAtOnce
		q.Read(trip)
		c.Claimed, c.CreatedAt, c.Previous = q.Found, q.Row.CreatedAt, q.Row.Previous
		return
	}
	var q db.Claim
	q.Read(trip)
	c.Claimed, c.CreatedAt = q.Found, q.Row.CreatedAt
}

// TakeOver claims a key whose record has expired.
type TakeOver struct {
	Key *Key

	Claimed   bool
	CreatedAt time.Time
	Previous  string
}

// Queue adds the statement.
func (c *TakeOver) Queue(trip *roundtrip.Trip) {
	k := c.Key
	q := db.TakeOver{Scope: k.scope, Key: k.key, Hash: k.hash[:], ExecutionID: k.ExecutionID, TTL: k.ttl,
		Patience: patience, Lock: k.claimsLock()}
	q.Queue(trip)
}

// Read reads the answer.
func (c *TakeOver) Read(trip *roundtrip.Trip) {
	var q db.TakeOver
	q.Read(trip)
	c.Claimed, c.CreatedAt, c.Previous = q.Found, q.Row.CreatedAt, q.Row.Previous
}
