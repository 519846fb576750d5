// Package record reads and evicts the records of idem for its operators.
package record

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// LockTimeout is how long a statement waits for somebody who changes the table or a record.
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

func settle(ctx context.Context, tx pgx.Tx, timeout time.Duration) error {
	_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES
		('search_path', 'pg_catalog, pg_temp'), ('DateStyle', 'ISO, YMD'), ('TimeZone', 'UTC'), ('IntervalStyle', 'postgres'),
		('bytea_output', 'hex'), ('extra_float_digits', '1'), ('standard_conforming_strings', 'on'),
		('statement_timeout', $1::pg_catalog.text), ('lock_timeout', $2::pg_catalog.text)) AS settings (name, value)`,
		milliseconds(timeout), milliseconds(LockTimeout))
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
