package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// In stores the action in idem.audit, in the caller's transaction.
func (q *NoteAct) In(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, NoteActSQL, q.Args()...)
	return err
}
