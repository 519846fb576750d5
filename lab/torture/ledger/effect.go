// Package ledger has the tables of the workload and their checks: [Install] creates the tables,
// [Effect.Note] and [Transfer.Write] write an effect, and [Take] reads the database at the end.
package ledger

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/migrations"
	"github.com/idem-go/idem/seal"
)

// Effect is the first of the rows that an execution writes.
type Effect struct {
	ExecutionID string
	Op          history.Op
	Scope       string
	Key         string
	Payload     string
	Digest      string
	TTL         int64 // retention period in microseconds
	// Noted is the time of the insert, by the clock of the database, in microseconds.
	Noted int64
}

// Transfer is the rest of what an execution writes: money that moves between two accounts.
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

//go:embed schema.sql
var schema string

// Install creates the schema of idem and the schema of the torture in an empty database. It sets
// short lock and deadlock timeouts, so that lock conflicts end soon.
func Install(ctx context.Context, dsn string) error {
	if err := migrate.UpAt(ctx, dsn, migrations.FS); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	for _, sql := range []string{
		schema,
		fmt.Sprintf("INSERT INTO torture.accounts (id) SELECT generate_series(0, %d)", Accounts+BatchAccounts-1),
		"ALTER DATABASE " + name + " SET deadlock_timeout = '20ms'",
		"ALTER DATABASE " + name + " SET lock_timeout = '2s'",
	} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// Sealers are the Sealers of a service that introduces sealing and rotates its keys at the same
// time. One writes plain responses, and the other two seal with different keys. Each of the three
// can read all responses.
var Sealers = []*seal.Sealer{
	seal.New(keys("one"), seal.WritePlain()), seal.New(keys("one"), seal.AcceptPlain()), seal.New(keys("two"), seal.AcceptPlain()),
}

func keys(primary string) seal.Keys {
	return seal.Keys{Primary: primary, Secrets: map[string][]byte{
		"one": bytes.Repeat([]byte{1}, seal.SecretSize), "two": bytes.Repeat([]byte{2}, seal.SecretSize),
	}}
}

// unreadable is the digest of a response that cannot be opened. No other response has it.
const unreadable = "unreadable"

func open(record *db.Record, scope, key string, hash [32]byte) error {
	of := db.NewKey(scope, key, hash, record.ExecutionID, 0)
	return record.Open(&of, Sealers[0])
}
