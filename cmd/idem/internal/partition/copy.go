package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Of a portion.
const (
	firstBlocks = 128
	mostBlocks  = 2048
	short, long = 50 * time.Millisecond, 200 * time.Millisecond // the next one has more blocks, or fewer
	portionLock = 500 * time.Millisecond                        // it may wait for a record that is being deleted
)

// errMoved says that the table was written anew, so that its rows are in other blocks.
var errMoved = errors.New("the table was written anew, by VACUUM FULL or CLUSTER")

// copy copies what was there before the trigger. A row that is copied is locked against DELETE until the copy is committed: the trigger then
// finds what it has to delete. A row that was changed since is in the new table by the trigger, and newer there.
func (j *job) copy(ctx context.Context) error {
	return j.walk(ctx, "copies", j.old, func(tx pgx.Tx, from, to string) error {
		tag, err := tx.Exec(ctx, fmt.Sprintf(`WITH rows AS MATERIALIZED (SELECT * FROM %s WHERE ctid >= $1::text::tid AND ctid < $2::text::tid FOR KEY SHARE)
			INSERT INTO %s (%s) SELECT %[3]s FROM rows ON CONFLICT (%s) DO NOTHING`, j.old, j.parted, strings.Join(j.cols, ", "), strings.Join(j.key, ", ")), from, to)
		j.report.Copied += tag.RowsAffected()
		return err
	})
}

// compare reads both tables once, and looks up each row in the other one. Each portion has one snapshot, in which they are the same.
func (j *job) compare(ctx context.Context) error {
	tables := []string{j.old}
	for n := range j.Parts {
		tables = append(tables, j.part(n))
	}
	for i, table := range tables {
		other, phase := j.parted, "compares"
		if i > 0 {
			other, phase = j.old, fmt.Sprintf("compares partition %d of %d", i, j.Parts)
		}
		var same []string
		for _, c := range j.key {
			same = append(same, fmt.Sprintf("a.%s = b.%[1]s", c)) // an index can look for that
		}
		for _, c := range j.cols {
			same = append(same, fmt.Sprintf("a.%s IS NOT DISTINCT FROM b.%[1]s", c))
		}
		err := j.walk(ctx, phase, table, func(tx pgx.Tx, from, to string) error {
			var all, odd int64
			err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM %s b WHERE %s))
				FROM %s a WHERE a.ctid >= $1::text::tid AND a.ctid < $2::text::tid`, other, strings.Join(same, " AND "), table), from, to).Scan(&all, &odd)
			if err == nil && odd > 0 {
				err = fmt.Errorf("%w: %d rows of %s are not in %s as they are; nothing was changed: idem partition --abort %s, and say where they came from", ErrDiffers, odd, table, other, j.Table)
			}
			j.report.Compared += all
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walk goes through the blocks that a table has now, a portion at a time. What is added behind them was written by the trigger as well.
func (j *job) walk(ctx context.Context, phase, table string, work func(tx pgx.Tx, from, to string) error) error {
	for {
		err := j.walkOnce(ctx, phase, table, work)
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

func (j *job) walkOnce(ctx context.Context, phase, table string, work func(tx pgx.Tx, from, to string) error) error {
	var total, file int64
	err := j.pool.QueryRow(ctx, `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::int8, pg_relation_filenode($1::text::regclass)::int8`, table).Scan(&total, &file)
	if err != nil {
		return err
	}
	blocks := j.Blocks
	if blocks == 0 {
		blocks = firstBlocks
	}
	for at, failures := int64(0), 0; at < total; {
		j.tell(phase, at, total)
		begin, next := time.Now(), min(at+blocks, total)
		err := j.in(ctx, portionLock, func(tx pgx.Tx) error {
			var now int64
			// The table is locked against being written anew before its file is looked at.
			if err := tx.QueryRow(ctx, fmt.Sprintf(`WITH here AS (SELECT FROM %s LIMIT 0) SELECT pg_relation_filenode($1::text::regclass)::int8 FROM (SELECT count(*) FROM here) _`, table), table).Scan(&now); err != nil {
				return err
			}
			if now != file {
				return errMoved
			}
			return work(tx, fmt.Sprintf("(%d,0)", at), fmt.Sprintf("(%d,0)", next))
		})
		took := time.Since(begin)
		switch {
		case hasCode(err, "55P03", "40P01", "40001"):
			if failures++; failures > 100 {
				return err
			}
			blocks = max(blocks/2, 1)
		case err != nil:
			return err
		default:
			at, failures = next, 0
			if j.Blocks == 0 && took < short {
				blocks = min(2*blocks, mostBlocks)
			} else if took > long {
				blocks = max(blocks/2, 1)
			}
		}
		if err := rest(ctx, min(time.Duration(float64(took)*(1/j.Share-1)), time.Minute)); err != nil {
			return err
		}
	}
	j.tell(phase, total, total)
	return nil
}
