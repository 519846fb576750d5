package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTimeout bounds the wait for a server that no longer answers.
const rollbackTimeout = time.Second

// Look calls work in a transaction that only reads. All statements see one snapshot, and the server
// rejects writes. Look never commits, so work may handle a rejected statement and return nil.
func Look(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(bounded) // otherwise the server rolls back when the connection closes
	}()
	if err := settle(ctx, tx, timeout); err != nil {
		return err
	}
	return work(tx)
}

// Place describes the database of a transaction.
type Place struct {
	Database, Role string
	Standby        bool
	Now            time.Time // by the clock of the database
}

// Where returns the database and role of tx.
func Where(ctx context.Context, tx pgx.Tx) (p Place, err error) {
	err = tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text, pg_is_in_recovery(), clock_timestamp()").
		Scan(&p.Database, &p.Role, &p.Standby, &p.Now)
	return p, err
}

// Lacking holds the privileges that a role lacks for reading the tables of idem.
type Lacking struct {
	Role   string // quoted
	Schema bool
	Tables []string // qualified and quoted
}

// Lacks returns what the role of tx cannot read. The result is empty if schema idem does not exist.
func Lacks(ctx context.Context, tx pgx.Tx) (l Lacking, err error) {
	err = tx.QueryRow(ctx, `SELECT quote_ident(current_user), NOT coalesce(has_schema_privilege(n.oid, 'USAGE'), false), ARRAY(
			SELECT format('idem.%I', c.relname) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, 'SELECT')
			ORDER BY 1)
		FROM pg_namespace n WHERE n.nspname = 'idem'`).Scan(&l.Role, &l.Schema, &l.Tables)
	return l, err
}
