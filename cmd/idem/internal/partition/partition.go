// Package partition converts a table of idem that is in use into a table with hash partitions.
//
// Run creates a new partitioned table beside the old one. A trigger on the old table copies each
// write to the new table, in the transaction of the write. Run copies the older rows in short
// transactions, by ranges of blocks. It then compares both tables, renames the new table to the
// name of the old one, and drops the old one.
package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config configures Run and Abort.
type Config struct {
	Table    string // records or inbox: idem looks up their rows by the primary key only
	Parts    int
	Share    float64       // share of the time in which Run copies; Run is idle for the rest
	Patience time.Duration // how long to retry to lock the whole table
	Blocks   int64         // number of blocks to copy in a transaction; 0 for a number that adapts
	Progress func(Progress)
}

// Progress describes how far a run is.
type Progress struct {
	Phase       string
	Done, Total int64 // blocks
	Waiting     error // the error of the last attempt to lock the table; nil if Run is not waiting
}

// Report summarizes a run.
type Report struct {
	Resumed  bool  // the run continued an earlier one
	Copied   int64 // rows that Run copied; rows that only the trigger wrote are not counted
	Compared int64
	Duration time.Duration
	Longest  time.Duration // the longest time for which writers may have waited
}

// ErrDiffers is returned by Run if the comparison finds a row that only one table has, or that is
// different in both.
var ErrDiffers = errors.New("the new table differs from the old one")

// job is one call of Run or Abort.
type job struct {
	Config
	pool   *pgxpool.Pool
	old    string   // the old table, quoted, with its schema
	parted string   // the name of the new table before it is renamed
	key    []string // the columns of the primary key, quoted
	cols   []string // all columns, quoted
	report Report
}

// Run partitions the table of config.
//
// If Run is interrupted, both tables and the triggers remain. A later Run continues with them, and
// Abort removes them. Run returns a *RefusedError if the table has properties that the partitioned
// table would lack. It returns ErrDiffers if it finds the tables different before it renames them.
// In both cases the old table stays in use.
func Run(ctx context.Context, pool *pgxpool.Pool, config Config) (Report, error) {
	begin := time.Now()
	j, err := newJob(ctx, pool, config)
	if err != nil {
		return Report{}, err
	}
	var isSwapped bool
	err = pool.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL AND to_regclass($2::text) IS NULL`, j.old+"_whole", j.parted).Scan(&isSwapped)
	if err != nil {
		return Report{}, err
	}
	if isSwapped { // an earlier run was interrupted after the renaming
		j.report.Resumed = true
		return j.report, j.drop(ctx)
	}
	for _, step := range []func(context.Context) error{j.refuse, j.prepare, j.mirror, j.copy, j.compare, j.swap, j.drop} {
		if err := step(ctx); err != nil {
			return j.report, err
		}
	}
	j.report.Duration = time.Since(begin)
	return j.report, nil
}

// newJob reads the columns and the primary key of the table. It fails if the table does not exist.
func newJob(ctx context.Context, pool *pgxpool.Pool, config Config) (*job, error) {
	j := &job{Config: config, pool: pool, old: "idem." + config.Table, parted: "idem." + config.Table + "_parted"}
	err := pool.QueryRow(ctx, `
		SELECT array_agg(quote_ident(a.attname) ORDER BY a.attnum),
		       array_agg(quote_ident(a.attname) ORDER BY array_position(i.indkey::int2[], a.attnum)) FILTER (WHERE a.attnum = ANY (i.indkey))
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE i.indrelid = to_regclass($1::text) AND i.indisprimary`, j.old).Scan(&j.cols, &j.key)
	if err == nil && j.key == nil {
		err = fmt.Errorf("there is no table %s with a primary key: run idem migrate up", j.old)
	}
	return j, err
}

// part returns the name of partition n.
func (j *job) part(n int) string { return fmt.Sprintf("%s_%d", j.old, n) }

func (j *job) progress(phase string, done, total int64) {
	if j.Progress != nil {
		j.Progress(Progress{Phase: phase, Done: done, Total: total})
	}
}

// in runs the function work in a transaction with settings of its own. A statement waits for a lock
// for at most the given limit. A commit does not wait for the disk, because a later run can repeat
// what a crash loses. Sequential scans are off, so that every portion is read by its block range or
// by an index.
func (j *job) in(ctx context.Context, limit time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, j.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'),
			('statement_timeout', '0'), ('lock_timeout', $1), ('synchronous_commit', 'off'), ('enable_seqscan', 'off')) AS settings (name, value)`,
			fmt.Sprint(limit.Milliseconds()))
		if err != nil {
			return err
		}
		return work(tx)
	})
}

// RefusedError is returned by Run for a table that cannot be partitioned in its present state: the
// new table would lack a property of the old one, or another object would keep using the old table.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string { return strings.Join(e.Reasons, "; ") }

// refuse returns a *RefusedError with all properties that the new table would lack. Objects that
// the migrations create are no reason to refuse, because prepare copies them. refuse lists all
// reasons, so that a person can remove them together.
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
