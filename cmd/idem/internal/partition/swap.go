package partition

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// swap drops the triggers and renames both tables and their indexes, under an exclusive lock. A
// statement that waits for the lock then resolves the name to the new table.
func (j *job) swap(ctx context.Context) error {
	if _, err := j.pool.Exec(ctx, "ANALYZE "+j.parted); err != nil { // without statistics the first plans would be poor
		return err
	}
	indexes, err := j.indexes(ctx)
	if err != nil {
		return err
	}
	statements := []string{
		fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", j.old),
		"DROP TRIGGER idem_parted ON " + j.old, "DROP TRIGGER idem_parted_truncate ON " + j.old,
		fmt.Sprintf("ALTER TABLE %s RENAME TO %s_whole", j.old, j.Table),
		fmt.Sprintf("ALTER TABLE %s RENAME TO %s", j.parted, j.Table),
	}
	for name, parted := range indexes {
		statements = append(statements,
			fmt.Sprintf("ALTER INDEX idem.%s RENAME TO %s", pgx.Identifier{name}.Sanitize(), pgx.Identifier{name + "_whole"}.Sanitize()),
			fmt.Sprintf("ALTER INDEX idem.%s RENAME TO %s", pgx.Identifier{parted}.Sanitize(), pgx.Identifier{name}.Sanitize()))
	}
	return j.locked(ctx, "waits for a moment in which no session uses the table", func(tx pgx.Tx) error { return execute(ctx, tx, statements) })
}

// indexes maps the name of each index of the old table to the name of the corresponding index of
// the new table.
func (j *job) indexes(ctx context.Context) (map[string]string, error) {
	// ForEachRow returns the error of Query.
	rows, _ := j.pool.Query(ctx, `SELECT c.relname, CASE WHEN i.indisprimary THEN $2::text || '_parted_pkey' ELSE c.relname || '_parted' END
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::text::regclass`, j.old, j.Table)
	names := map[string]string{}
	var name, parted string
	_, err := pgx.ForEachRow(rows, []any{&name, &parted}, func() error { names[name] = parted; return nil })
	return names, err
}

// drop drops the trigger function and the old table.
func (j *job) drop(ctx context.Context) error {
	if _, err := j.pool.Exec(ctx, "DROP FUNCTION IF EXISTS "+j.parted+"()"); err != nil {
		return err
	}
	_, err := j.pool.Exec(ctx, "DROP TABLE IF EXISTS "+j.old+"_whole")
	return err
}
