package db

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key is one call's view of one key. It is made by NewKey.
type Key struct {
	ExecutionID string // of the call
	Lock        int64

	scope, key  string
	hash        [32]byte
	ttl         time.Duration
	withoutLock bool
}

// NewKey returns the Key of a call. The TTL is that of the record which the call would write.
func NewKey(scope, key string, hash [32]byte, executionID string, ttl time.Duration) Key {
	return Key{ExecutionID: executionID, Lock: LockOf(scope, key), scope: scope, key: key, hash: hash, ttl: ttl}
}

// Of returns the key as the call of another execution has it.
func (k *Key) Of(executionID string) Key {
	of := *k
	of.ExecutionID = executionID
	return of
}

// Beside returns the key of another call in the same scope, whose claims take no advisory lock.
func (k *Key) Beside(key string, hash [32]byte, executionID string, ttl time.Duration) Key {
	beside := NewKey(k.scope, key, hash, executionID, ttl)
	beside.UseLock(nil)
	return beside
}

// UseLock makes the key's claims take another advisory lock, or none if it is nil. The guarantee does not depend on it.
func (k *Key) UseLock(lock *int64) {
	if k.withoutLock = lock == nil; !k.withoutLock {
		k.Lock = *lock
	}
}

// claimsLock is the lock that claims take, nil if they take none.
func (k *Key) claimsLock() *int64 {
	if k.withoutLock {
		return nil
	}
	return &k.Lock
}

// MaxLocks is how many advisory locks the claims of one transaction take at most. The server has room for some thousands in
// all, and accepts no connection once that is used up.
const MaxLocks = 32

func (*Key) maxLocks() int { return MaxLocks }

// patience is how long a claim that may not wait does wait for a session that is deleting the record. It lets a purge pass.
func (*Key) patience() string { return "20ms" }

// LockOf returns the advisory lock that a claim takes. It is a hash for which no key can be found, or a client could take
// a lock of the application's, or another tenant's.
func LockOf(scope, key string) int64 {
	buf := make([]byte, 0, 256)
	buf = append(buf, "idem.lock/1\n"...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(len(scope)))
	buf = append(buf, scope...)
	buf = append(buf, key...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
