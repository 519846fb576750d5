// Package record reads and changes the tables of the schema idem for the command line and the web
// page.
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

// LockTimeout limits how long a statement waits for a lock.
const LockTimeout = 2 * time.Second

// Tx calls the function work in a transaction with settings of its own. The transaction neither
// depends on the settings of the session nor changes them, so Tx also works behind a pooler that
// assigns a connection to each transaction. Names without a schema resolve to pg_catalog, and dates
// and bytes have the format that pgx expects. The server cancels a statement that takes longer than
// timeout; 0 means no limit.
func Tx(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := applySettings(ctx, tx, timeout); err != nil {
			return err
		}
		return work(tx)
	})
}

// ErrUnknown means that COMMIT was sent and not answered: the change may or may not be committed.
var ErrUnknown = errors.New("the server has not answered COMMIT")

// commitTimeout limits the wait for the answer to a COMMIT.
const commitTimeout = 4 * time.Second

// Change calls the function work in a transaction with the settings of Tx, and commits. If ctx
// ends, the statements of work are canceled, but a COMMIT that was sent is not. Change returns
// ErrUnknown if the outcome of the COMMIT is unknown. Any other error means that nothing was
// changed.
func Change(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	err = applySettings(ctx, tx, timeout)
	if err == nil {
		err = work(tx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tx.Rollback(ctx) // if it fails, the server rolls back when the connection is closed
		return err
	}
	return commit(ctx, tx)
}

// commit sends COMMIT and waits up to commitTimeout for the answer.
//
// It never asks the server to cancel a COMMIT. A server with synchronous replication that waits for
// a standby would stop waiting and report success, although the standby does not have the change.
// After commitTimeout the goroutine keeps the connection until the answer arrives.
//
// A COMMIT was refused if the server returned an error, or rolled back instead. After any other
// error, such as a lost connection, the outcome is unknown.
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

// applySettings sets the settings of the transaction. It turns JIT compilation off: compiling a
// statement takes seconds on a busy server, and the statements of this program read few rows, even
// if the planner expects many.
func applySettings(ctx context.Context, tx pgx.Tx, timeout time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES
		('search_path', 'pg_catalog, pg_temp'), ('DateStyle', 'ISO, YMD'), ('TimeZone', 'UTC'), ('IntervalStyle', 'postgres'),
		('bytea_output', 'hex'), ('extra_float_digits', '1'), ('jit', 'off'), ('standard_conforming_strings', 'on'),
		('statement_timeout', $1::pg_catalog.text), ('lock_timeout', $2::pg_catalog.text)) AS settings (name, value)`,
		milliseconds(timeout), milliseconds(LockTimeout))
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// rollbackTimeout limits the wait for a server that does not answer a ROLLBACK.
const rollbackTimeout = time.Second

// ReadOnly calls the function work in a read-only transaction with the settings of Tx. All
// statements see one snapshot. The transaction is always rolled back, so work may return nil
// although the server refused one of its statements.
func ReadOnly(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(bounded) // if it fails, the server rolls back when the connection is closed
	}()
	if err := applySettings(ctx, tx, timeout); err != nil {
		return err
	}
	return work(tx)
}

// Location describes the database that was read.
type Location struct {
	Database, Role string
	Standby        bool
	Now            time.Time // the clock of the database
}

// Locate returns the database and role of tx.
func Locate(ctx context.Context, tx pgx.Tx) (p Location, err error) {
	err = tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text, pg_is_in_recovery(), clock_timestamp()").
		Scan(&p.Database, &p.Role, &p.Standby, &p.Now)
	return p, err
}

// MissingPrivileges lists the read privileges that a role does not have.
type MissingPrivileges struct {
	Role   string   // quoted for SQL
	Schema bool     // USAGE on the schema is missing
	Tables []string // tables without SELECT, qualified and quoted
}

// ReadMissingPrivileges returns the read privileges on the schema idem that the role of tx does not
// have.
func ReadMissingPrivileges(ctx context.Context, tx pgx.Tx) (l MissingPrivileges, err error) {
	err = tx.QueryRow(ctx, `SELECT quote_ident(current_user), NOT coalesce(has_schema_privilege(n.oid, 'USAGE'), false), ARRAY(
			SELECT format('idem.%I', c.relname) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, 'SELECT')
			ORDER BY 1)
		FROM pg_namespace n WHERE n.nspname = 'idem'`).Scan(&l.Role, &l.Schema, &l.Tables)
	return l, err
}
