// Package record reads and evicts the records of idem for its operators.
package record

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LockTimeout is how long a statement waits for a session that changes the table or a record.
const LockTimeout = 2 * time.Second

// Tx runs work in a transaction that depends on no setting of the session and leaves none behind, also behind a pooler that
// gives every transaction another connection: what its statements name without a schema is pg_catalog's, and dates and bytes
// are written as pgx reads them. A statement that takes longer than timeout is given up, unless timeout is 0.
func Tx(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := settle(ctx, tx, timeout); err != nil {
			return err
		}
		return work(tx)
	})
}

// ErrUnknown says that COMMIT was sent and not answered: the change is made, or it is not.
var ErrUnknown = errors.New("the server has not answered COMMIT")

// commitTimeout is how long the answer to a COMMIT is awaited, after which the connection is given up.
const commitTimeout = 4 * time.Second

// Change is Tx for work that writes. The end of ctx ends the work, and never a COMMIT that was sent, so that what is told of
// it is true.
func Change(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	err = settle(ctx, tx, timeout)
	if err == nil {
		err = work(tx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tx.Rollback(ctx) // or the server does, when the connection is closed
		return err
	}
	return commit(ctx, tx)
}

// commit waits for the answer to COMMIT, and does not ask to cancel it: to a server that waits for a standby, that would mean to wait no
// longer, and to tell of a success that the standby has not got. A connection whose answer is not awaited any more is left to itself.
func commit(ctx context.Context, tx pgx.Tx) error {
	answered := make(chan error, 1)
	go func() { answered <- tx.Commit(context.WithoutCancel(ctx)) }()
	var err error
	select {
	case err = <-answered:
	case <-time.After(commitTimeout):
		return ErrUnknown
	}
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// settle sets what the transaction rests on. To compile a statement takes seconds on a busy server, and the statements of this
// program read few rows, however many the planner expects: hence jit.
func settle(ctx context.Context, tx pgx.Tx, timeout time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES
		('search_path', 'pg_catalog, pg_temp'), ('DateStyle', 'ISO, YMD'), ('TimeZone', 'UTC'), ('IntervalStyle', 'postgres'),
		('bytea_output', 'hex'), ('extra_float_digits', '1'), ('jit', 'off'), ('standard_conforming_strings', 'on'),
		('statement_timeout', $1::pg_catalog.text), ('lock_timeout', $2::pg_catalog.text)) AS settings (name, value)`,
		milliseconds(timeout), milliseconds(LockTimeout))
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
