package record

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Find returns the record of a key, expired or not, and nil if there is none. The response is read only if it is to be
// revealed.
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

// Evict deletes the record of one execution, and reports whether it was there. Another execution's is left alone.
func Evict(ctx context.Context, tx pgx.Tx, scope, key, operationID string) (bool, error) {
	tag, err := tx.Exec(ctx, "DELETE FROM idem.records WHERE scope = $1 AND key = $2 AND operation_id = $3::text::uuid",
		scope, key, operationID)
	return tag.RowsAffected() > 0, err
}
