package store

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// Key is one call's view of one key, with its parts as statements carry them. It is made by NewKey.
type Key struct {
	OperationID string // of the call
	Lock        int64

	scope, key, hash, operationID, ttl, lock []byte
}

// NewKey returns the Key of a call. The TTL is that of the record which the call would write.
func NewKey(scope, key string, hash [32]byte, operationID string, ttl time.Duration) Key {
	k := Key{OperationID: operationID, Lock: LockOf(scope, key)}
	buf := make([]byte, 0, len(scope)+len(key)+len(hash)+len(operationID)+64)
	cut := func(grown []byte) []byte {
		piece := grown[len(buf):len(grown):len(grown)]
		buf = grown
		return piece
	}
	k.scope = cut(append(buf, scope...))
	k.key = cut(append(buf, key...))
	k.hash = cut(append(buf, hash[:]...))
	k.operationID = cut(append(buf, operationID...))
	k.ttl = cut(append(strconv.AppendInt(buf, ttl.Microseconds(), 10), " microseconds"...))
	k.lock = cut(strconv.AppendInt(buf, k.Lock, 10))
	return k
}

// Of returns the key as the call of another execution has it.
func (k *Key) Of(operationID string) Key {
	of := *k
	of.OperationID, of.operationID = operationID, []byte(operationID)
	return of
}

// Beside returns the key of another call in the same scope, whose claims take no advisory lock.
func (k *Key) Beside(key string, hash [32]byte, operationID string, ttl time.Duration) Key {
	beside := NewKey(string(k.scope), key, hash, operationID, ttl)
	beside.UseLock(nil)
	return beside
}

// UseLock makes the key's claims take another advisory lock, or none if it is nil. The guarantee does not depend on it.
func (k *Key) UseLock(lock *int64) {
	k.lock = nil
	if lock != nil {
		k.Lock, k.lock = *lock, strconv.AppendInt(nil, *lock, 10)
	}
}

// LockOf returns the advisory lock that a claim takes. It is a hash that nobody can find a key for, or a client could take
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
