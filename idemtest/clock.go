package idemtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Advance lets time pass for what idem keeps in the database of pool, as a clock that jumps ahead by d: records expire, pauses and deadlines of operations
// are over, and messages that were held back are due. Each moment in the schema of idem is moved into the past, in one transaction. now() and tables of
// your own stay as they are.
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

// momentsSQL makes a statement for each table of idem that has moments.
const momentsSQL = `
SELECT format('UPDATE %s SET %s', c.oid::regclass, string_agg(format('%1$I = %1$I - $1::interval', a.attname), ', '))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
	AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped AND a.attnum > 0
GROUP BY c.oid`
