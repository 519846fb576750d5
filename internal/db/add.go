package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// AddMessages inserts messages into the outbox. Each slice has one entry for each message. Unlike
// the requests of this package, AddMessages is not sent on a round trip. The methods In and To pass
// the statement to pgx.
type AddMessages struct {
	IDs, Topics, Keys, Types []string
	Payloads                 [][]byte
	Headers                  []string // as WriteHeaders returns them
	Traces                   []string
	// Moments are the earliest times of publication, as WriteMoment returns them. Nil means that
	// every message may be published at once.
	Moments []string
}

// In inserts the messages in the transaction tx.
func (a *AddMessages) In(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) error {
	sql, args := a.query()
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// To queues the statement on a batch of pgx.
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
