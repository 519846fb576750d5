package operation

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/store"
)

// keyTag begins what is hashed. It is frozen: other systems hold the keys.
const keyTag = "idem.operation.key/1\n"

// keyLength is how many characters a derived key has: 160 bits.
const keyLength = 32

// derivedKey returns the key by which a call is known to the other side. It is the same in every attempt and in every process:
// nothing of an attempt, a time or an epoch goes into it.
func derivedKey(operationID string, kind store.StepKind, name string) string {
	h := sha256.New()
	h.Write([]byte(keyTag))
	var length [8]byte
	for _, part := range []string{operationID, string(kind), name} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return lower.EncodeToString(h.Sum(nil))[:keyLength]
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// CallKey returns the key by which the other side knows a Call, or an Undo, for a person who has to ask there. kind and step are
// those of a StepStatus, or "call" and the step at which the operation is.
func CallKey(operationID, kind, step string) string {
	return derivedKey(operationID, store.StepKind(kind), step)
}

// childTag begins what is hashed for the id of a child. It is frozen: a parent that waits finds its child by it.
const childTag = "idem.operation.child/1\n"

// ChildID returns the id of the operation that a Child has begun. step is its name in the operation, as a StepStatus tells it.
func ChildID(operationID, step string) string {
	key := sha256.Sum256([]byte(childTag + operationID + "\n" + step))
	id := pgtype.UUID{Valid: true}
	copy(id.Bytes[:], key[:])
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x80 // version 8: made in a way of our own
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}
