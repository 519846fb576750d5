package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/display"
)

// Record is a row of idem.records. Header and Body are set only if the caller asked to reveal them:
// a stored response may contain personal data, and should not leave the database without need.
type Record struct {
	Scope       string     `json:"scope"`
	Key         string     `json:"key"`
	KeyBytes    int        `json:"key_bytes"`
	State       string     `json:"state"`
	Expired     bool       `json:"expired"` // the expiry has passed, so the key counts as new
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

// columns are the columns that scan reads. Parameter 1 of the query says whether to read Header and
// Body.
const columns = `scope, key, execution_id::text, state, encode(hash, 'hex'), status, coalesce(sealed_by, ''), created_at, expires_at, completed_at,
	coalesce(length(convert_to(header::text, 'UTF8')), 0)::int8, coalesce(length(body), 0)::int8,
	CASE WHEN $1 THEN convert_to(header::text, 'UTF8') END, CASE WHEN $1 THEN body END, clock_timestamp()`

// scan reads a row of columns. Expired follows from the clock of the database, and not from that of
// this machine.
func scan(row pgx.CollectableRow) (Record, error) {
	var r Record
	err := row.Scan(&r.Scope, &r.Key, &r.ExecutionID, &r.State, &r.Hash, &r.Status, &r.SealedBy, &r.CreatedAt, &r.ExpiresAt, &r.CompletedAt,
		&r.HeaderBytes, &r.BodyBytes, &r.Header, &r.Body, &r.Now)
	r.KeyBytes, r.Expired = len(r.Key), !r.ExpiresAt.After(r.Now)
	return r, err
}

// Find returns the record of a key, or nil if there is none. It returns an expired record, too.
// Header and Body are read only if reveal is true.
func Find(ctx context.Context, tx pgx.Tx, scope, key string, reveal bool) (*Record, error) {
	// CollectExactlyOneRow returns the error of Query.
	rows, _ := tx.Query(ctx, "SELECT "+columns+" FROM idem.records WHERE scope = $2 AND key = $3", reveal, scope, key)
	r, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Evict deletes the record of an execution, and writes a row to idem.audit in the same transaction.
// It returns false if the key has no record, or has the record of another execution. The execution
// id is a part of the condition, so that Evict does not delete a record that was created after the
// person looked.
func Evict(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, scope, key, executionID string) (evicted bool, err error) {
	err = Change(ctx, pool, timeout, func(tx pgx.Tx) error {
		var state string
		err := tx.QueryRow(ctx, "DELETE FROM idem.records WHERE scope = $1 AND key = $2 AND execution_id = $3::text::uuid RETURNING state",
			scope, key, executionID).Scan(&state)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		evicted = true
		note := audit.Note(ctx, db.Evict, state)
		note.OperationID, note.Scope, note.Key = executionID, scope, display.Key(key)
		return note.In(ctx, tx)
	})
	return evicted, err
}

// Filter selects records for List. An empty field selects all.
type Filter struct {
	ScopePrefix string
	After       *Name // only records after this one
	State       string
	Key         string // in any scope
	ExecutionID string
	Older       time.Duration
	Limit       int
}

// Name identifies a record.
type Name struct{ Scope, Key string }

// List returns records in the order of scope and key. This is the order of the primary key, so
// Limit ends the scan early, and ScopePrefix is a range of the index. The other conditions are
// checked row by row.
func List(ctx context.Context, tx pgx.Tx, f Filter) ([]Record, error) {
	where, args := f.where([]any{false})
	query := fmt.Sprintf("SELECT %s FROM idem.records%s ORDER BY scope, key LIMIT %d", columns, where, f.Limit)
	rows, _ := tx.Query(ctx, query, args...) // CollectRows returns the error
	return pgx.CollectRows(rows, scan)
}

// where returns the WHERE clause for f, and args with the values of f appended. Each "?" in a
// condition becomes the number of the next argument. The clause has only the conditions in use: the
// planner can use the range of the index only if the condition is not hidden behind an OR.
func (f Filter) where(args []any) (string, []any) {
	var conditions []string
	add := func(condition string, values ...any) {
		for _, value := range values {
			args = append(args, value)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		conditions = append(conditions, condition)
	}
	if f.ScopePrefix != "" {
		add("scope >= ?", f.ScopePrefix)
		if end := afterAll(f.ScopePrefix); end != "" {
			add("scope < ?", end)
		}
	}
	if f.After != nil {
		add("(scope, key) > (?, ?)", f.After.Scope, f.After.Key)
	}
	if f.Key != "" {
		add("key = ?", f.Key)
	}
	if f.ExecutionID != "" {
		add("execution_id = ?::text::uuid", f.ExecutionID)
	}
	switch f.State {
	case "":
	case Expired:
		add("expires_at <= clock_timestamp()")
	default:
		add("state = ? AND expires_at > clock_timestamp()", f.State)
	}
	if f.Older > 0 {
		add("created_at < clock_timestamp() - ?::text::interval", fmt.Sprintf("%d microseconds", f.Older.Microseconds()))
	}
	if conditions == nil {
		return "", args
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// afterAll returns the smallest string, in byte order, that is greater than all strings with the
// prefix. It increments the last rune that can be incremented, and drops the runes after it. It
// returns "" if there is no such string.
func afterAll(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		next := runes[i] + 1
		// U+D800 to U+DFFF are surrogates, which UTF-8 cannot encode.
		if next == 0xd800 {
			next = 0xe000
		}
		if utf8.ValidRune(next) {
			return string(runes[:i]) + string(next)
		}
	}
	return ""
}
