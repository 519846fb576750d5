package partition

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// swap gives the new table the name of the old one. Statements that wait for it find the new one.
func (j *job) swap(ctx context.Context) error {
	if _, err := j.pool.Exec(ctx, "ANALYZE "+j.parted); err != nil { // or the first plans would know nothing
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
	return j.alone(ctx, "waits for a moment in which no session uses the table", func(tx pgx.Tx) error { return execute(ctx, tx, statements) })
}

// indexes returns the names of the old table's indexes, each with that of the new table's.
func (j *job) indexes(ctx context.Context) (map[string]string, error) {
	rows, err := j.pool.Query(ctx, `SELECT c.relname, CASE WHEN i.indisprimary THEN $2::text || '_parted_pkey' ELSE c.relname || '_parted' END
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::text::regclass`, j.old, j.Table)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	var name, parted string
	_, err = pgx.ForEachRow(rows, []any{&name, &parted}, func() error { names[name] = parted; return nil })
	return names, err
}

// drop removes what is left of the old table.
func (j *job) drop(ctx context.Context) error {
	if _, err := j.pool.Exec(ctx, "DROP FUNCTION IF EXISTS "+j.parted+"()"); err != nil {
		return err
	}
	_, err := j.pool.Exec(ctx, "DROP TABLE IF EXISTS "+j.old+"_whole")
	return err
}
