package db

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key is the idempotency key of one call, with the execution id and the options of the call. NewKey
// returns a Key.
type Key struct {
	ExecutionID string
	Lock        int64

	scope, key  string
	hash        [32]byte
	ttl         time.Duration
	withoutLock bool
}

// NewKey returns the Key of a call. ttl is the lifetime of the record that the call would write.
func NewKey(scope, key string, hash [32]byte, executionID string, ttl time.Duration) Key {
	return Key{ExecutionID: executionID, Lock: LockOf(scope, key), scope: scope, key: key, hash: hash, ttl: ttl}
}

// Of returns the same key with the id of another execution.
func (k *Key) Of(executionID string) Key {
	of := *k
	of.ExecutionID = executionID
	return of
}

// Beside returns another key in the same scope. Claims of the new key take no advisory lock: see
// UseLock.
func (k *Key) Beside(key string, hash [32]byte, executionID string, ttl time.Duration) Key {
	beside := NewKey(k.scope, key, hash, executionID, ttl)
	beside.UseLock(nil)
	return beside
}

// UseLock sets the advisory lock that claims of the key take. With the lock, a claim fails at once
// while another transaction holds the key. If lock is nil, the claim may wait for that transaction.
// In both cases the primary key of idem.records allows only one claim.
func (k *Key) UseLock(lock *int64) {
	if k.withoutLock = lock == nil; !k.withoutLock {
		k.Lock = *lock
	}
}

// claimsLock returns the advisory lock that claims take, or nil if they take none.
func (k *Key) claimsLock() *int64 {
	if k.withoutLock {
		return nil
	}
	return &k.Lock
}

// MaxLocks limits the advisory locks that the claims of one transaction take. The server has room
// for a few thousand locks in all, and accepts no connection when they are used up.
const MaxLocks = 32

func (*Key) maxLocks() int { return MaxLocks }

// patience returns the lock_timeout of a claim whose caller must not wait. The timeout is long
// enough for a purge to delete the record.
func (*Key) patience() string { return "20ms" }

// LockOf returns the number of the advisory lock that a claim of the key takes. The number is a
// cryptographic hash. With a weaker hash, a client could choose a key whose lock is also used by
// the application or by another tenant.
func LockOf(scope, key string) int64 {
	buf := make([]byte, 0, 256)
	buf = append(buf, "idem.lock/1\n"...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(len(scope)))
	buf = append(buf, scope...)
	buf = append(buf, key...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
