package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/db"
)

// AddMessages adds messages to the outbox. Each slice has one entry for each message. It is no Request: it travels in a
// transaction of the caller's, by pgx.
type AddMessages struct {
	IDs, Topics, Keys, Types []string
	Payloads                 [][]byte
	Headers                  []string // as WriteHeaders makes them
	Traces                   []string
}

// In adds them in a transaction.
func (a *AddMessages) In(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) error {
	_, err := tx.Exec(ctx, db.AddMessages, a.args()...)
	return err
}

// To adds the statement to a batch.
func (a *AddMessages) To(batch *pgx.Batch) { batch.Queue(db.AddMessages, a.args()...) }

func (a *AddMessages) args() []any {
	return []any{a.IDs, a.Topics, a.Keys, a.Types, a.Payloads, a.Headers, a.Traces}
}
