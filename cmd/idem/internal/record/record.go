package record

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Record is a row of idem.records. Header and Body are set only if the caller asked to reveal them.
type Record struct {
	Scope       string     `json:"scope"`
	Key         string     `json:"key"`
	KeyBytes    int        `json:"key_bytes"`
	State       string     `json:"state"`
	Expired     bool       `json:"expired"` // its key counts as new
	ExecutionID string     `json:"execution_id"`
	Status      *int32     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	CompletedAt *time.Time `json:"completed_at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	Hash        string     `json:"hash"`                // hexadecimal
	SealedBy    string     `json:"sealed_by,omitempty"` // key id; empty if the response is not sealed
	HeaderBytes int64      `json:"header_bytes"`
	BodyBytes   int64      `json:"body_bytes"`

	Header json.RawMessage `json:"header,omitempty"`
	Body   []byte          `json:"body,omitempty"` // base64

	Now time.Time `json:"-"` // the clock of the database
}

// States of a record. Expired is not stored: it is derived from the expiry.
const (
	Completed  = "completed"
	Failed     = "failed"
	Processing = "processing"
	Running    = "running" // an operation holds the key
	Expired    = "expired"
)

const columns = `scope, key, execution_id::text, state, encode(hash, 'hex'), status, coalesce(sealed_by, ''), created_at, expires_at, completed_at,
	coalesce(length(convert_to(header::text, 'UTF8')), 0)::int8, coalesce(length(body), 0)::int8,
	CASE WHEN $1 THEN convert_to(header::text, 'UTF8') END, CASE WHEN $1 THEN body END, clock_timestamp()`

func scan(row pgx.CollectableRow) (Record, error) {
	var r Record
	err := row.Scan(&r.Scope, &r.Key, &r.ExecutionID, &r.State, &r.Hash, &r.Status, &r.SealedBy, &r.CreatedAt, &r.ExpiresAt, &r.CompletedAt,
		&r.HeaderBytes, &r.BodyBytes, &r.Header, &r.Body, &r.Now)
	r.KeyBytes, r.Expired = len(r.Key), !r.ExpiresAt.After(r.Now)
	return r, err
}
