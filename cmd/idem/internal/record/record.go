package record

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// Record is a row of idem.records. Header and Body are nil unless revealed.
type Record struct {
	Scope, Key, ExecutionID, State string
	Hash                           []byte
	Status                         *int32
	SealedBy                       string // ID of the seal key; empty if the response is plain
	CreatedAt, ExpiresAt           time.Time
	CompletedAt                    *time.Time
	HeaderBytes, BodyBytes         int64
	Header, Body                   []byte

	Now time.Time // by the clock of the database
}

// Expired reports whether the record has expired, so that its key counts as new.
func (r *Record) Expired() bool { return !r.ExpiresAt.After(r.Now) }

// The states of a record. Expired is not stored: it is the state of a record after its expiry.
const (
	Completed  = "completed"
	Failed     = "failed"
	Processing = "processing"
	Running    = "running" // an operation with this key is in progress
	Expired    = "expired"
)

const columns = `scope, key, execution_id::text, state, hash, status, coalesce(sealed_by, ''), created_at, expires_at, completed_at,
	coalesce(length(convert_to(header::text, 'UTF8')), 0)::int8, coalesce(length(body), 0)::int8,
	CASE WHEN $1 THEN convert_to(header::text, 'UTF8') END, CASE WHEN $1 THEN body END, clock_timestamp()`

func scan(row pgx.CollectableRow) (Record, error) {
	var r Record
	err := row.Scan(&r.Scope, &r.Key, &r.ExecutionID, &r.State, &r.Hash, &r.Status, &r.SealedBy, &r.CreatedAt, &r.ExpiresAt, &r.CompletedAt,
		&r.HeaderBytes, &r.BodyBytes, &r.Header, &r.Body, &r.Now)
	return r, err
}
