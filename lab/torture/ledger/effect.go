package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
)

// Effect is the first row of an execution's effect.
type Effect struct {
	ExecutionID string     `json:"i"`
	Op          history.Op `json:"o"`
	Scope       string     `json:"s"`
	Key         string     `json:"k"`
	Payload     string     `json:"h"`
	Digest      string     `json:"d"`
	TTL         int64      `json:"ttl"`   // in microseconds
	Noted       int64      `json:"noted"` // when it was written, by the database's clock, in microseconds
}

// Transfer is the rest of it.
type Transfer struct {
	From, To int // accounts
	Amount   int64
}

// Accounts is how many there are to choose from, and BatchAccounts how many follow for those who keep one for long.
const (
	Accounts      = 128
	BatchAccounts = 32
)

// Note writes the first row.
func (e *Effect) Note(ctx context.Context, tx pgx.Tx, hash idem.Hash) error {
	_, err := tx.Exec(ctx, `insert into torture.effects (execution_id, op, scope, key, payload, hash, digest, ttl_us)
		values ($1::uuid, $2::bigint, $3::text, $4::text, $5::text, $6::bytea, $7::text, $8::bigint)`,
		e.ExecutionID, int64(e.Op), e.Scope, e.Key, e.Payload, hash[:], e.Digest, e.TTL)
	return err
}

// Write makes the transfer. Two that take the same accounts in opposite order are a deadlock, which is intended.
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

// The parts that the caller of DoTx writes: one before, and one after, which tells what DoTx answered. The others are
// outcomes of package history.
const (
	PartBefore   = "before"
	PartRejected = "rejected"
	PartRefused  = "refused"
)

// Outer is what the caller of DoTx writes beside it.
type Outer struct {
	Op    history.Op `json:"o"`
	Scope string     `json:"s"`
	Key   string     `json:"k"`
	Part  string     `json:"part"`
}

// Write adds the row.
func (o Outer) Write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `insert into torture.outers (op, scope, key, part) values ($1::bigint, $2::text, $3::text, $4::text)`,
		int64(o.Op), o.Scope, o.Key, o.Part)
	return err
}
