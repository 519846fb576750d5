package record

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/display"
)

// Find returns the record of a key, expired or not, or nil if there is none. It reads the response
// only if reveal is set.
func Find(ctx context.Context, tx pgx.Tx, scope, key string, reveal bool) (*Record, error) {
	rows, err := tx.Query(ctx, "SELECT "+columns+" FROM idem.records WHERE scope = $2 AND key = $3", reveal, scope, key)
	if err != nil {
		return nil, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Evict deletes the record of one execution, writes an audit entry, and reports whether the record
// existed. A record of a later execution of the same key stays.
func Evict(ctx context.Context, tx pgx.Tx, scope, key, executionID string) (bool, error) {
	var state string
	err := tx.QueryRow(ctx, "DELETE FROM idem.records WHERE scope = $1 AND key = $2 AND execution_id = $3::text::uuid RETURNING state",
		scope, key, executionID).Scan(&state)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	note := audit.Note(ctx, db.Evict, state)
	note.OperationID, note.Scope, note.Key = executionID, scope, display.Key(key)
	return true, note.In(ctx, tx)
}
