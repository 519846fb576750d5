package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTimeout limits the wait for a server that does not answer a ROLLBACK.
const rollbackTimeout = time.Second

// Look runs work in a read-only transaction with the settings of Tx. All statements see one
// snapshot. The transaction is always rolled back, so work may return nil although the server
// refused one of its statements.
func Look(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(bounded) // if it fails, the server rolls back when the connection is closed
	}()
	if err := settle(ctx, tx, timeout); err != nil {
		return err
	}
	return work(tx)
}

// Place describes the database that was read.
type Place struct {
	Database, Role string
	Standby        bool
	Now            time.Time // the clock of the database
}

// Where returns the database and role of tx.
func Where(ctx context.Context, tx pgx.Tx) (p Place, err error) {
	err = tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text, pg_is_in_recovery(), clock_timestamp()").
		Scan(&p.Database, &p.Role, &p.Standby, &p.Now)
	return p, err
}

// Lacking lists the read privileges that a role does not have.
type Lacking struct {
	Role   string   // quoted for SQL
	Schema bool     // USAGE on the schema is missing
	Tables []string // tables without SELECT, qualified and quoted
}

// Lacks returns the read privileges on the schema idem that the role of tx does not have.
func Lacks(ctx context.Context, tx pgx.Tx) (l Lacking, err error) {
	err = tx.QueryRow(ctx, `SELECT quote_ident(current_user), NOT coalesce(has_schema_privilege(n.oid, 'USAGE'), false), ARRAY(
			SELECT format('idem.%I', c.relname) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, 'SELECT')
			ORDER BY 1)
		FROM pg_namespace n WHERE n.nspname = 'idem'`).Scan(&l.Role, &l.Schema, &l.Tables)
	return l, err
}
