package record

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTimeout is how long a server that has fallen silent is waited for.
const rollbackTimeout = time.Second

// Look is Tx for work that only reads: all of its statements see one snapshot, and the server refuses any that writes. There is nothing to
// commit, so that work may go on after a statement that the server has refused.
func Look(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, work func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(bounded) // or the server does, when the connection is closed
	}()
	if err := settle(ctx, tx, timeout); err != nil {
		return err
	}
	return work(tx)
}

// Place is where something was read.
type Place struct {
	Database, Role string
	Standby        bool
	Now            time.Time // by the clock of the database
}

// Where tells where tx reads.
func Where(ctx context.Context, tx pgx.Tx) (p Place, err error) {
	err = tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text, pg_is_in_recovery(), clock_timestamp()").
		Scan(&p.Database, &p.Role, &p.Standby, &p.Now)
	return p, err
}

// Lacking are the privileges of reading that the role of tx does not have.
type Lacking struct {
	Role   string // quoted
	Schema bool
	Tables []string // qualified and quoted
}

// Lacks tells what the role of tx may not read.
func Lacks(ctx context.Context, tx pgx.Tx) (l Lacking, err error) {
	err = tx.QueryRow(ctx, `SELECT quote_ident(current_user), NOT coalesce(has_schema_privilege(n.oid, 'USAGE'), false), ARRAY(
			SELECT format('idem.%I', c.relname) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, 'SELECT')
			ORDER BY 1)
		FROM pg_namespace n WHERE n.nspname = 'idem'`).Scan(&l.Role, &l.Schema, &l.Tables)
	return l, err
}
