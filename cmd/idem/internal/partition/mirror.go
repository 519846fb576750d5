package partition

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/txn"
)

// lockTimeout limits the wait for a strong lock, because other sessions queue behind the waiting
// statement. retryDelay is the delay before the next attempt, in which these sessions can proceed.
const (
	lockTimeout = 200 * time.Millisecond
	retryDelay  = time.Second
)

// prepare creates the new, empty table with the settings, comments, indexes and privileges of the
// old one, and the trigger function. If an earlier run has created that table, prepare only checks
// that the number of partitions is the same.
func (j *job) prepare(ctx context.Context) error {
	var parts int
	err := j.pool.QueryRow(ctx, `SELECT count(*) FROM pg_catalog.pg_inherits WHERE inhparent = to_regclass($1::text)`, j.parted).Scan(&parts)
	if err != nil {
		return err
	}
	if parts > 0 {
		j.report.Resumed = true
		if parts != j.Parts {
			return &RefusedError{[]string{fmt.Sprintf("an earlier run began with %d partitions: use --parts %d, or --abort first", parts, parts)}}
		}
		return nil
	}
	return j.in(ctx, lockTimeout, func(tx pgx.Tx) error {
		statements := []string{fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING INDEXES, PRIMARY KEY (%s)) PARTITION BY HASH (%[3]s)",
			j.parted, j.old, strings.Join(j.key, ", "))}
		var settings string
		err := tx.QueryRow(ctx, `SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '')
			FROM pg_class WHERE oid = $1::text::regclass`, j.old).Scan(&settings)
		if err != nil {
			return err
		}
		for n := range j.Parts {
			statements = append(statements, fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d) %s", j.part(n), j.parted, j.Parts, n, settings))
		}
		if err := execute(ctx, tx, append(statements, j.function())); err != nil {
			return err
		}
		copies, err := j.copyProperties(ctx, tx)
		if err != nil {
			return err
		}
		return execute(ctx, tx, copies)
	})
}

// copyProperties returns the statements that copy the comment, the secondary indexes and the
// privileges of the old table. The partitions get the privileges too, because purge deletes from
// each partition by name.
func (j *job) copyProperties(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, _ := tx.Query(ctx, `
		SELECT format('COMMENT ON TABLE %s IS %L', $2::text, obj_description($1::text::regclass, 'pg_class'))
		UNION ALL
		SELECT replace(pg_get_indexdef(indexrelid), format('INDEX %I ON %s ', relname, $1::text), format('INDEX %I ON %s ', relname || '_parted', $2::text))
		FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = $1::text::regclass AND NOT indisprimary
		UNION ALL
		SELECT format('GRANT %s%s ON %s TO %s%s', g.privilege_type, g.cols, r.oid::regclass, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
			CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
		FROM (SELECT (aclexplode(relacl)).*, '' AS cols FROM pg_class WHERE oid = $1::text::regclass
			UNION ALL
			SELECT (aclexplode(attacl)).*, format(' (%I)', attname) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped) AS g,
			(SELECT relid AS oid FROM pg_partition_tree($2::text::regclass)) AS r`, j.old, j.parted) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// function returns the statement that creates the trigger function, which repeats a write to the
// old table on the new one.
//
// A transaction in REPEATABLE READ or SERIALIZABLE may not see a row that was copied after its
// snapshot. An INSERT or UPDATE that conflicts with such a row fails with a serialization error,
// and the caller retries. A DELETE would silently find no row. The trigger therefore writes the row
// first in these isolation levels, to provoke the error.
func (j *job) function() string {
	var assignments, sameKey []string
	for _, c := range j.cols {
		assignments = append(assignments, fmt.Sprintf("%s = EXCLUDED.%[1]s", c))
	}
	for _, c := range j.key {
		sameKey = append(sameKey, fmt.Sprintf("%s OPERATOR(pg_catalog.=) OLD.%[1]s", c))
	}
	values := func(row string) string { return row + "." + strings.Join(j.cols, ", "+row+".") }
	write := func(row string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT (%s) DO UPDATE SET %s;",
			j.parted, strings.Join(j.cols, ", "), values(row), strings.Join(j.key, ", "), strings.Join(assignments, ", "))
	}
	remove := fmt.Sprintf("DELETE FROM %s WHERE %s;", j.parted, strings.Join(sameKey, " AND "))
	return fmt.Sprintf(`CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $mirror$
		BEGIN
			CASE TG_OP
			WHEN 'TRUNCATE' THEN
				TRUNCATE %s;
			WHEN 'DELETE' THEN
				IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
					%s
				END IF;
				%s
			ELSE
				%s
			END CASE;
			RETURN NULL;
		END $mirror$`, j.parted, j.parted, write("OLD"), remove, write("NEW"))
}

// mirror installs the triggers. From then on, every transaction that writes to the old table also
// writes to the new one. Locking the table first waits until all transactions that wrote without
// the trigger have ended.
func (j *job) mirror(ctx context.Context) error {
	trigger := "idem_parted"
	var there bool
	err := j.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = $1::text::regclass AND tgname = $2)`,
		j.old, trigger).Scan(&there)
	if err != nil || there {
		return err
	}
	return j.locked(ctx, "waits for a moment without writers", func(tx pgx.Tx) error {
		return execute(ctx, tx, []string{
			fmt.Sprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", j.old),
			fmt.Sprintf("TRUNCATE %s", j.parted), // an earlier run may have left rows here after its triggers were dropped
			fmt.Sprintf("CREATE TRIGGER %s AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()", trigger, j.old, j.parted),
			fmt.Sprintf("CREATE TRIGGER %s_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()", trigger, j.old, j.parted),
		})
	})
}

// locked calls the function work, which needs a strong lock, in a transaction. While the
// transaction waits for the lock, other sessions queue behind it. So locked waits only briefly and
// tries again after a delay, until Config.Patience has passed.
func (j *job) locked(ctx context.Context, phase string, work func(pgx.Tx) error) error {
	for deadline := time.Now().Add(j.Patience); ; {
		begin := time.Now()
		err := j.in(ctx, lockTimeout, work)
		j.report.Longest = max(j.report.Longest, time.Since(begin))
		// 55P03: lock timeout; 40P01: deadlock.
		if !txn.HasCode(err, "55P03", "40P01") || time.Now().After(deadline) {
			return err
		}
		if j.Progress != nil {
			j.Progress(Progress{Phase: phase, Waiting: err})
		}
		if err := txn.Sleep(ctx, retryDelay); err != nil {
			return err
		}
	}
}

// Abort removes the new table and the triggers of runs that have not finished. It reports whether
// there was such a table.
func Abort(ctx context.Context, pool *pgxpool.Pool, config Config) (begun bool, err error) {
	j := &job{Config: config, pool: pool, old: "idem." + config.Table, parted: "idem." + config.Table + "_parted"}
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, j.parted).Scan(&begun); err != nil || !begun {
		return begun, err
	}
	return true, j.locked(ctx, "waits for a moment without writers", func(tx pgx.Tx) error {
		return execute(ctx, tx, []string{
			"LOCK TABLE " + j.old + " IN SHARE ROW EXCLUSIVE MODE",
			"DROP TRIGGER IF EXISTS idem_parted ON " + j.old, "DROP TRIGGER IF EXISTS idem_parted_truncate ON " + j.old,
			"DROP FUNCTION IF EXISTS " + j.parted + "()", "DROP TABLE " + j.parted,
		})
	})
}

// execute runs statements, up to the first error.
func execute(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// swap drops the triggers and renames both tables and their indexes, under an exclusive lock. A
// statement of another session that waited for this lock then uses the new table, because it
// resolves the name again.
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
