package record

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// blocksPerStatement is the number of blocks that one statement of a walk reads in all partitions
// together: 32 MB with blocks of 8 kB.
const blocksPerStatement = 4096

// sizes returns the number of blocks of each leaf partition of idem.records, or of the table itself
// if it is not partitioned.
func sizes(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	// CollectRows returns the error of Query.
	rows, _ := tx.Query(ctx, `
		SELECT coalesce(pg_relation_size(oid), 0) / current_setting('block_size')::int8 FROM pg_class
		WHERE oid = 'idem.records'::regclass AND relkind = 'r' OR oid IN (SELECT relid FROM pg_partition_tree('idem.records'::regclass) WHERE isleaf)`)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Size returns the size of the table idem.records and its partitions in bytes, without indexes and
// TOAST tables.
func Size(ctx context.Context, tx pgx.Tx) (int64, error) {
	blocks, err := sizes(ctx, tx)
	if err != nil {
		return 0, err
	}
	var block int64
	err = tx.QueryRow(ctx, "SELECT current_setting('block_size')::int8").Scan(&block)
	return block * blocksBefore(blocks, math.MaxInt64), err
}

// blocksBefore returns how many blocks of all partitions together have a number below at. The slice
// blocks has the number of blocks of each partition.
func blocksBefore(blocks []int64, at int64) (sum int64) {
	for _, n := range blocks {
		sum += min(n, at)
	}
	return sum
}

// LeftBehind scans the whole table idem.records, and passes every record in the state processing
// that has not expired to the function each. Such a record is visible only if the function of a
// call ended its own transaction, because an uncommitted claim is invisible to others. The scan
// consists of many short transactions, so it does not delay vacuum.
func LeftBehind(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, each func(Record), progress func(done, blocks int64)) error {
	return walk(ctx, pool, timeout, blocksPerStatement, leftBehind(each), progress)
}

// CountSealed scans the whole table idem.records and adds to counts how many responses are sealed
// with each key id. The empty id counts the responses that are not sealed.
func CountSealed(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, counts map[string]float64) error {
	count := func(ctx context.Context, tx pgx.Tx, from, to string) error {
		rows, _ := tx.Query(ctx, `SELECT coalesce(sealed_by, ''), count(*)::float8 FROM idem.records
			WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND state IN ('completed', 'failed') GROUP BY 1`, from, to) // ForEachRow returns the error
		var key string
		var n float64
		_, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { counts[key] += n; return nil })
		return err
	}
	return walk(ctx, pool, timeout, blocksPerStatement, count, func(int64, int64) {})
}

// reader reads the rows between two positions (ctid) of every partition.
type reader func(ctx context.Context, tx pgx.Tx, from, to string) error

// walk calls read for one range of block numbers after another. A single statement reads the range
// in all partitions. It queries the parent table, because a role that may read the table may have
// no privilege on a partition.
func walk(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, perStatement int64, read reader, progress func(done, blocks int64)) error {
	var blocks []int64
	err := Tx(ctx, pool, timeout, func(tx pgx.Tx) (err error) { blocks, err = sizes(ctx, tx); return err })
	if err != nil {
		return err
	}
	step := max(perStatement/max(int64(len(blocks)), 1), 1)
	all := blocksBefore(blocks, math.MaxInt64)
	for at := int64(0); blocksBefore(blocks, at) < all; at += step {
		progress(blocksBefore(blocks, at), all)
		err := Tx(ctx, pool, timeout, func(tx pgx.Tx) error {
			return read(ctx, tx, fmt.Sprintf("(%d,0)", at), fmt.Sprintf("(%d,0)", at+step))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func leftBehind(each func(Record)) reader {
	return func(ctx context.Context, tx pgx.Tx, from, to string) error {
		// CollectRows returns the error of Query.
		rows, _ := tx.Query(ctx, "SELECT "+columns+` FROM idem.records
			WHERE ctid >= $2::text::tid AND ctid < $3::text::tid AND state = 'processing' AND expires_at > clock_timestamp()`, false, from, to)
		found, err := pgx.CollectRows(rows, scan)
		for _, r := range found {
			each(r)
		}
		return err
	}
}

// Counts is the result of CountAll.
type Counts struct {
	States []StateCount `json:"states"`
	Sealed []SealCount  `json:"sealed"` // by key id
}

// SealCount is the number of responses that are sealed with a key.
type SealCount struct {
	Key     string `json:"key"` // the id of the seal key; empty for the responses that are not sealed
	Records int64  `json:"records"`
}

// StateCount is the number of records in a state.
type StateCount struct {
	State         string `json:"state"`
	Live          int64  `json:"live"`
	Expired       int64  `json:"expired"`
	ResponseBytes int64  `json:"response_bytes"` // the stored size of all bodies
}

// CountAll counts all records in one statement that reads the whole table. Each row of the
// statement counts either one state or one key id.
func CountAll(ctx context.Context, tx pgx.Tx) (*Counts, error) {
	rows, _ := tx.Query(ctx, `
		SELECT grouping(state) = 0, (CASE WHEN grouping(state) = 0 THEN state ELSE coalesce(sealed_by, '') END) COLLATE "C",
			count(*) FILTER (WHERE expires_at > now()), count(*) FILTER (WHERE expires_at <= now()),
			coalesce(sum(pg_column_size(body)), 0)::int8, count(*) FILTER (WHERE state IN ('completed', 'failed'))
		FROM idem.records GROUP BY GROUPING SETS ((state), (coalesce(sealed_by, ''))) ORDER BY 2`) // ForEachRow returns the error
	counts := &Counts{States: []StateCount{}, Sealed: []SealCount{}}
	var isState bool
	var state StateCount
	var sealed SealCount
	_, err := pgx.ForEachRow(rows, []any{&isState, &state.State, &state.Live, &state.Expired, &state.ResponseBytes, &sealed.Records}, func() error {
		if sealed.Key = state.State; isState {
			counts.States = append(counts.States, state)
		} else if sealed.Records > 0 {
			counts.Sealed = append(counts.Sealed, sealed)
		}
		return nil
	})
	return counts, err
}

// Inserted returns how many records were inserted since the statistics of the server were reset.
// The server also counts rows whose transaction was rolled back. For a partitioned table the sum
// includes all partitions.
func Inserted(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.oid)), 0)::int8 FROM (
		SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'r'
		UNION SELECT p.relid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_partition_tree(c.oid) p
		WHERE n.nspname = 'idem' AND c.relname = 'records' AND c.relkind = 'p' AND p.isleaf) AS t`).Scan(&n)
	return n, err
}
