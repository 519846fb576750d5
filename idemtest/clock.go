package idemtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Advance moves all times that idem stores in the database of pool into the past by d, in one
// transaction. idem then behaves as if its clock had jumped ahead by d: records expire, retry
// delays end, deadlines of operations pass, and delayed messages become due. Advance changes
// neither now() nor the tables of the application.
func Advance(t testing.TB, pool *pgxpool.Pool, d time.Duration) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(context.Background(), momentsSQL)
		statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, sql := range statements {
			if _, err := tx.Exec(context.Background(), sql, d); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("idemtest: Advance: %v", err)
	}
}

// momentsSQL returns an UPDATE statement for each table of idem that has columns of type
// timestamptz. Each statement subtracts $1 from all these columns of its table. Partitions get no
// statement of their own, because the UPDATE of the parent table covers them.
const momentsSQL = `
SELECT format('UPDATE %s SET %s', c.oid::regclass, string_agg(format('%1$I = %1$I - $1::interval', a.attname), ', '))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
	AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped AND a.attnum > 0
GROUP BY c.oid`
