package partition

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// RefusedError is returned by Run for a table that cannot be partitioned as it is: the new table
// would lack something, or another object would keep using the old table.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string { return strings.Join(e.Reasons, "; ") }

// refuse returns a *RefusedError with all properties that the new table would lack. Objects that
// the migrations create are no reason, because prepare copies them. All reasons are found at once, so
// that a person removes them in one go.
func (j *job) refuse(ctx context.Context) error {
	rows, _ := j.pool.Query(ctx, `
		WITH t AS (SELECT oid, relkind, relowner, relrowsecurity, relpersistence, relispartition FROM pg_catalog.pg_class WHERE oid = $1::text::regclass)
		SELECT format('%s is partitioned already', $1::text) FROM t WHERE relkind <> 'r'
		UNION ALL SELECT format('%s is a partition itself, or has children', $1::text) FROM t
			WHERE relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE t.oid IN (inhrelid, inhparent))
		UNION ALL SELECT format('this role does not own %s: give --role %s', $1::text, relowner::regrole) FROM t WHERE NOT pg_has_role(relowner, 'USAGE')
		UNION ALL SELECT format('%s is not logged: ALTER TABLE %s SET LOGGED', $1::text, $1::text) FROM t WHERE relpersistence <> 'p'
		UNION ALL SELECT format('%s has row security, which a copy would not have: ALTER TABLE %s DISABLE ROW LEVEL SECURITY', $1::text, $1::text) FROM t WHERE relrowsecurity
		UNION ALL SELECT format('the trigger %I is on %s: drop it, and create it again afterwards', tgname, $1::text) FROM t JOIN pg_catalog.pg_trigger ON tgrelid = t.oid
			WHERE NOT tgisinternal AND tgname NOT LIKE 'idem\_parted%'
		UNION ALL SELECT format('the constraint %I of %s refers to %s, or %3$s to another table', conname, conrelid::regclass, $1::text)
			FROM t JOIN pg_catalog.pg_constraint ON contype = 'f' AND t.oid IN (conrelid, confrelid)
		UNION ALL SELECT format('the publication %I has %s: its subscribers would not get the rows of the new table', pubname, $1::text)
			FROM t JOIN pg_catalog.pg_publication_tables p ON format('%I.%I', p.schemaname, p.tablename) = $1::text
		UNION ALL SELECT DISTINCT format('%s uses %s, and would keep using the old table', pg_describe_object(d.classid, d.objid, 0), $1::text)
			FROM t JOIN pg_catalog.pg_depend d ON d.refobjid = t.oid AND d.deptype = 'n' AND d.refclassid = 'pg_class'::regclass
			WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass)`, j.old) // CollectRows returns the error
	reasons, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	if j.Parts < 2 || j.Parts > 1024 {
		return &RefusedError{[]string{fmt.Sprintf("%d partitions: from 2 to 1024 are possible", j.Parts)}}
	}
	return nil
}
