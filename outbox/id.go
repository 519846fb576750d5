package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// NewID makes an ID for a message: a UUID of version 7, so that those of one time are together wherever they are stored.
func NewID() string {
	var id [16]byte
	rand.Read(id[:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixMilli())<<16)
	copy(id[:6], at[:6])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return pgtype.UUID{Bytes: id, Valid: true}.String()
}

var errNoUUID = errors.New("its ID is no UUID")

// canonical returns a UUID in the form in which the database gives it back.
func canonical(id string) (string, error) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return "", errNoUUID
	}
	var uuid pgtype.UUID
	if err := uuid.Scan(id); err != nil {
		return "", errNoUUID
	}
	return uuid.String(), nil
}
