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
	Moments                  []string // before which none is published, as WriteMoment makes them; nil if all may be at once
}

// In adds them in a transaction.
func (a *AddMessages) In(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) error {
	_, err := tx.Exec(ctx, a.sql(), a.args()...)
	return err
}

// To adds the statement to a batch.
func (a *AddMessages) To(batch *pgx.Batch) { batch.Queue(a.sql(), a.args()...) }

func (a *AddMessages) sql() string {
	if a.Moments == nil {
		return db.AddMessages
	}
	return db.AddDelayed
}

func (a *AddMessages) args() []any {
	args := []any{a.IDs, a.Topics, a.Keys, a.Types, a.Payloads, a.Headers, a.Traces}
	if a.Moments != nil {
		args = append(args, a.Moments)
	}
	return args
}
