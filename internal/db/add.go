package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	sql, args := a.query()
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// To adds the statement to a batch.
func (a *AddMessages) To(batch *pgx.Batch) {
	sql, args := a.query()
	batch.Queue(sql, args...)
}

func (a *AddMessages) query() (sql string, args []any) {
	if a.Moments == nil {
		q := addMessages{IDs: a.IDs, Topics: a.Topics, Keys: a.Keys, Types: a.Types, Payloads: a.Payloads, Headers: a.Headers, Traces: a.Traces}
		return AddMessagesSQL, q.Args()
	}
	q := addDelayed{IDs: a.IDs, Topics: a.Topics, Keys: a.Keys, Types: a.Types, Payloads: a.Payloads, Headers: a.Headers, Traces: a.Traces,
		Moments: a.Moments}
	return AddDelayedSQL, q.Args()
}
