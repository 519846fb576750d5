// Package record reads the tables of idem for the command line and its user interface, and makes
// the changes that need no library call.
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

// LockTimeout is the lock timeout of all statements.
const LockTimeout = 2 * time.Second

// Tx calls work in a transaction whose settings do not depend on the session: search_path, formats
// of dates and bytes, timeouts. The settings end with the transaction, so Tx also works behind a
// pooler in transaction mode. A statement is canceled after timeout, unless timeout is 0.
func Tx(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := settle(ctx, tx, timeout); err != nil {
			return err
		}
		return work(tx)
	})
}

// ErrUnknown is returned by Change if COMMIT was sent and no answer arrived. The change may or may
// not have been made.
var ErrUnknown = errors.New("the server has not answered COMMIT")

// commitTimeout bounds the wait for the answer to a COMMIT.
const commitTimeout = 4 * time.Second

// Change calls work in a transaction as Tx does, for work that writes. The end of ctx cancels work,
// but not a COMMIT that was sent. Change returns nil only if the change is committed, and
// ErrUnknown if the outcome is unknown.
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
		_ = tx.Rollback(ctx) // otherwise the server rolls back when the connection closes
		return err
	}
	return commit(ctx, tx)
}

// commit sends COMMIT and waits for the answer.
//
// A COMMIT is never canceled. A server that waits for a synchronous standby would stop waiting at a
// cancel request, and report success for a transaction that the standby does not have. After
// commitTimeout the commit continues on its connection without a reader.
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

// settle sets the settings of the transaction. JIT compilation is off: it can take seconds on a
// busy server, and the statements here read few rows whatever the planner estimates.
func settle(ctx context.Context, tx pgx.Tx, timeout time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES
		('search_path', 'pg_catalog, pg_temp'), ('DateStyle', 'ISO, YMD'), ('TimeZone', 'UTC'), ('IntervalStyle', 'postgres'),
		('bytea_output', 'hex'), ('extra_float_digits', '1'), ('jit', 'off'), ('standard_conforming_strings', 'on'),
		('statement_timeout', $1::pg_catalog.text), ('lock_timeout', $2::pg_catalog.text)) AS settings (name, value)`,
		milliseconds(timeout), milliseconds(LockTimeout))
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
