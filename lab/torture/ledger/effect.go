// Package ledger has the tables of the workload and their checks: [Install] creates the tables,
// [Effect.Note] and [Transfer.Write] write an effect, and [Take] reads the database at the end.
package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
)

// Effect is the first row of the effect of an execution.
type Effect struct {
	ExecutionID string
	Op          history.Op
	Scope       string
	Key         string
	Payload     string
	Digest      string
	TTL         int64 // in microseconds
	// Noted is the time of the insert, by the clock of the database, in microseconds.
	Noted int64
}

// Transfer is the rest of the effect: money that moves between two accounts.
type Transfer struct {
	From, To int // accounts
	Amount   int64
}

// Accounts is the number of accounts for ordinary calls. BatchAccounts is the number of further
// accounts for batches, which lock an account for longer.
const (
	Accounts      = 128
	BatchAccounts = 32
)

// Note writes the first row of the effect.
func (e *Effect) Note(ctx context.Context, tx pgx.Tx, hash idem.Hash) error {
	_, err := tx.Exec(ctx, `insert into torture.effects (execution_id, op, scope, key, payload, hash, digest, ttl_us)
		values ($1::uuid, $2::bigint, $3::text, $4::text, $5::text, $6::bytea, $7::text, $8::bigint)`,
		e.ExecutionID, int64(e.Op), e.Scope, e.Key, e.Payload, hash[:], e.Digest, e.TTL)
	return err
}

// Write makes the transfer. Transfers between the same accounts in opposite directions deadlock,
// which is intended.
func (t Transfer) Write(ctx context.Context, tx pgx.Tx, executionID string) error {
	for _, leg := range []struct {
		account int
		amount  int64
	}{{t.From, -t.Amount}, {t.To, t.Amount}} {
		_, err := tx.Exec(ctx, `update torture.accounts set balance = balance + $2::bigint where id = $1::integer`, leg.account, leg.amount)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into torture.entries (execution_id, account, amount) values ($1::uuid, $2::integer, $3::bigint)`,
			executionID, leg.account, leg.amount)
		if err != nil {
			return err
		}
	}
	return nil
}

// Values of Outer.Part. The caller of DoTx writes one row before the call and one after it. The
// second row has the outcome: one of these constants or an outcome of package history.
const (
	PartBefore   = "before"
	PartRejected = "rejected"
	PartRefused  = "refused"
)

// Outer is a row that the caller of DoTx writes in its transaction.
type Outer struct {
	Op    history.Op
	Scope string
	Key   string
	Part  string
}

func (o Outer) Write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `insert into torture.outers (op, scope, key, part) values ($1::bigint, $2::text, $3::text, $4::text)`,
		int64(o.Op), o.Scope, o.Key, o.Part)
	return err
}
