// Package partition turns a table of idem that holds rows into one with partitions, while it is used.
//
// A new table with partitions is made beside it. A trigger writes to it what is written to the old one, in the same transaction, and
// what was there before is copied by ranges of blocks, in short transactions. When the two are the same, they change names.
package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tables are those that it can partition: what they hold is found by its primary key alone.
var Tables = []string{"records", "inbox"}

// Config says what is done, and how fast.
type Config struct {
	Table    string
	Parts    int
	Share    float64       // part of the time that it works; the rest it pauses
	Patience time.Duration // how long it waits for the moments in which it needs the table for itself
	Blocks   int64         // of a first portion
	Progress func(Progress)
}

// Progress is how far it is.
type Progress struct {
	Phase       string
	Done, Total int64 // blocks
	Waiting     error // what it waits for
}

// Report is what was done.
type Report struct {
	Resumed  bool  // an earlier run had begun
	Copied   int64 // rows; those that the trigger has written come on top
	Compared int64
	Duration time.Duration
	Longest  time.Duration // for which writers waited, at most
}

// ErrDiffers says that the new table is not the same as the old one.
var ErrDiffers = errors.New("the new table differs from the old one")

// job is one run.
type job struct {
	Config
	pool   *pgxpool.Pool
	old    string   // quoted, with its schema
	parted string   // the new one, until it takes the name
	key    []string // the columns of the primary key, quoted
	cols   []string // all columns, quoted
	report Report
}

// Run partitions a table. Interrupted, it leaves what it has: the next run goes on with it, or Abort takes it back.
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
	if isSwapped { // by a run that was interrupted behind it
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

func newJob(ctx context.Context, pool *pgxpool.Pool, config Config) (*job, error) {
	j := &job{Config: config, pool: pool, old: "idem." + config.Table, parted: "idem." + config.Table + "_parted"}
	err := pool.QueryRow(ctx, `
		SELECT array_agg(quote_ident(a.attname) ORDER BY a.attnum),
		       array_agg(quote_ident(a.attname) ORDER BY array_position(i.indkey::int2[], a.attnum)) FILTER (WHERE a.attnum = ANY (i.indkey))
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE i.indrelid = to_regclass($1::text) AND i.indisprimary`, j.old).Scan(&j.cols, &j.key)
	if err == nil && j.key == nil {
		err = fmt.Errorf("there is no table %s with a primary key: idem migrate up makes it", j.old)
	}
	return j, err
}

// part is the name of a partition.
func (j *job) part(n int) string { return fmt.Sprintf("%s_%d", j.old, n) }

func (j *job) tell(phase string, done, total int64) {
	if j.Progress != nil {
		j.Progress(Progress{Phase: phase, Done: done, Total: total})
	}
}

// in runs statements in a transaction that neither waits long for a lock nor depends on the settings of the session.
func (j *job) in(ctx context.Context, lockTimeout time.Duration, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, j.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(name, value, true) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'),
			('statement_timeout', '0'), ('lock_timeout', $1), ('synchronous_commit', 'off'), ('enable_seqscan', 'off')) AS settings (name, value)`,
			fmt.Sprint(lockTimeout.Milliseconds()))
		if err != nil {
			return err
		}
		return work(tx)
	})
}
