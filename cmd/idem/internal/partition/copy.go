package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/txn"
)

// Limits of a portion, which is the range of blocks that one transaction copies or compares. The
// size of a portion depends on the time that the last portion took. A long transaction would delay
// vacuum, and would block a DELETE for long.
const (
	firstBlocks = 128
	maxBlocks   = 2048
	fast, slow  = 50 * time.Millisecond, 200 * time.Millisecond // a faster portion doubles the next one, a slower one halves it
	portionLock = 500 * time.Millisecond                        // lock timeout: a row may be locked by a DELETE
)

// errMoved means that the table was rewritten during a walk, so its rows are in other blocks now.
var errMoved = errors.New("the table was rewritten, by VACUUM FULL or CLUSTER")

// copy copies the rows that were written before the trigger was installed.
//
// A copied row is locked against DELETE until the copy is committed. A DELETE waits for that, and
// its trigger then finds the copied row. If a row was updated after the trigger was installed, the
// trigger has written the newer version to the new table. ON CONFLICT DO NOTHING keeps that
// version.
func (j *job) copy(ctx context.Context) error {
	return j.walk(ctx, "copies", j.old, func(tx pgx.Tx, from, to string) error {
		tag, err := tx.Exec(ctx, fmt.Sprintf(`WITH rows AS MATERIALIZED (SELECT * FROM %s WHERE ctid >= $1::text::tid AND ctid < $2::text::tid FOR KEY SHARE)
			INSERT INTO %s (%s) SELECT %[3]s FROM rows ON CONFLICT (%s) DO NOTHING`, j.old, j.parted, strings.Join(j.cols, ", "), strings.Join(j.key, ", ")), from, to)
		j.report.Copied += tag.RowsAffected()
		return err
	})
}

// compare scans both tables and looks up each row in the other table. It returns ErrDiffers if a
// row is missing or different. Each portion is one statement with one snapshot, in which both
// tables must be equal because every write commits to both. The comparison is not optional, because
// a key whose record is missing in the new table would execute again.
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
			same = append(same, fmt.Sprintf("a.%s = b.%[1]s", c)) // with "=", the planner can use the index of the primary key
		}
		for _, c := range j.cols {
			same = append(same, fmt.Sprintf("a.%s IS NOT DISTINCT FROM b.%[1]s", c))
		}
		err := j.walk(ctx, phase, table, func(tx pgx.Tx, from, to string) error {
			var all, different int64
			err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM %s b WHERE %s))
				FROM %s a WHERE a.ctid >= $1::text::tid AND a.ctid < $2::text::tid`, other, strings.Join(same, " AND "), table), from, to).Scan(&all, &different)
			if err == nil && different > 0 {
				err = fmt.Errorf("%w: %d rows of %s are missing from %s or differ there; nothing was changed: "+
					"find out who wrote them, and run idem partition --abort %s", ErrDiffers, different, table, other, j.Table)
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

// walk calls the function work for each range of blocks that the table has at the start. Rows that
// are added after the last of these blocks need no copy, because the trigger has written them. If
// the table is rewritten meanwhile, walk begins again.
func (j *job) walk(ctx context.Context, phase, table string, work func(tx pgx.Tx, from, to string) error) error {
	for {
		err := j.walkOnce(ctx, phase, table, work)
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

// walkOnce is one pass of walk. It adapts the size of portions, retries a portion after a lock
// timeout, a deadlock or a serialization failure, and sleeps after each portion, so that copying
// takes Config.Share of the time.
func (j *job) walkOnce(ctx context.Context, phase, table string, work func(tx pgx.Tx, from, to string) error) error {
	var total, file int64
	err := j.pool.QueryRow(ctx, `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::int8,
		pg_relation_filenode($1::text::regclass)::int8`, table).Scan(&total, &file)
	if err != nil {
		return err
	}
	blocks := j.Blocks
	if blocks == 0 {
		blocks = firstBlocks
	}
	for at, failures := int64(0), 0; at < total; {
		j.progress(phase, at, total)
		begin, next := time.Now(), min(at+blocks, total)
		err := j.in(ctx, portionLock, func(tx pgx.Tx) error {
			var now int64
			// Reading from the table locks it against a rewrite until the end of the transaction.
			// So the file number that is read here cannot change before work ends.
			err := tx.QueryRow(ctx, fmt.Sprintf(`WITH here AS (SELECT FROM %s LIMIT 0)
				SELECT pg_relation_filenode($1::text::regclass)::int8 FROM (SELECT count(*) FROM here) _`, table), table).Scan(&now)
			if err != nil {
				return err
			}
			if now != file {
				return errMoved
			}
			return work(tx, fmt.Sprintf("(%d,0)", at), fmt.Sprintf("(%d,0)", next))
		})
		took := time.Since(begin)
		switch {
		// Another session had locked or changed a row. Try again with a smaller portion.
		case txn.HasCode(err, "55P03", "40P01", "40001"):
			if failures++; failures > 100 {
				return err
			}
			blocks = max(blocks/2, 1)
		case err != nil:
			return err
		default:
			at, failures = next, 0
			if j.Blocks == 0 && took < fast {
				blocks = min(2*blocks, maxBlocks)
			} else if took > slow {
				blocks = max(blocks/2, 1)
			}
		}
		if err := txn.Sleep(ctx, min(time.Duration(float64(took)*(1/j.Share-1)), time.Minute)); err != nil {
			return err
		}
	}
	j.progress(phase, total, total)
	return nil
}
