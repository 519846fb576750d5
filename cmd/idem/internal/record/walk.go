package record

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// portion is how many blocks one statement of a walk reads: 32 MB.
const portion = 4096

// Size is how large the table is, in bytes, without what is stored beside it.
func Size(ctx context.Context, tx pgx.Tx) (int64, error) {
	var size int64
	err := tx.QueryRow(ctx, "SELECT pg_relation_size('idem.records'::regclass)").Scan(&size)
	return size, err
}

func countBlocks(ctx context.Context, tx pgx.Tx) (int64, error) {
	var blocks int64
	err := tx.QueryRow(ctx, "SELECT pg_relation_size('idem.records'::regclass) / current_setting('block_size')::int8").Scan(&blocks)
	return blocks, err
}

// LeftBehind walks the whole table and calls each for the records that are being processed, which is to say that an fn has
// ended its transaction behind the library's back: no other is ever visible. The walk is many short transactions, so that it
// holds nothing back.
func LeftBehind(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, each func(Record), progress func(done, blocks int64)) error {
	return walk(ctx, pool, timeout, portion, each, progress)
}

func walk(ctx context.Context, pool *pgxpool.Pool, timeout time.Duration, portion int64, each func(Record), progress func(done, blocks int64)) error {
	var blocks int64
	for at := int64(0); at == 0 || at < blocks; at += portion {
		err := Tx(ctx, pool, timeout, func(tx pgx.Tx) error {
			if at == 0 {
				var err error
				if blocks, err = countBlocks(ctx, tx); err != nil {
					return err
				}
			}
			progress(at, blocks)
			return leftBehind(ctx, tx, at, at+portion, each)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func leftBehind(ctx context.Context, tx pgx.Tx, from, to int64, each func(Record)) error {
	rows, err := tx.Query(ctx, "SELECT "+columns+` FROM idem.records
		WHERE ctid >= $2::text::tid AND ctid < $3::text::tid AND state = 'processing' AND expires_at > clock_timestamp()`,
		false, fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to))
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, scan)
	for _, r := range found {
		each(r)
	}
	return err
}
