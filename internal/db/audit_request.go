package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// In puts the act on record through a transaction of the caller's.
func (q *NoteAct) In(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, NoteActSQL, q.Args()...)
	return err
}
