package arena

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/bench/contestant"
)

// Booth is one contestant on its own database.
type Booth struct {
	Contestant contestant.Contestant
	Runner     contestant.Runner
	Pool       *pgxpool.Pool // the contestant's, also for looking at its database
}

// Settle returns when a connection is free. Where the pool has only one, whatever a call has left to do is done then.
func (b *Booth) Settle(ctx context.Context) error {
	return b.Pool.AcquireFunc(ctx, func(*pgxpool.Conn) error { return nil })
}

// WAL is how many bytes the server has written to its log.
func (b *Booth) WAL(ctx context.Context) (bytes float64, err error) {
	err = b.Pool.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").Scan(&bytes)
	return bytes, err
}

// Size is how many bytes the contestant's tables take.
func (b *Booth) Size(ctx context.Context) (bytes int64, err error) {
	for _, table := range b.Contestant.Tables {
		var size int64
		if err := b.Pool.QueryRow(ctx, "select pg_total_relation_size($1::text::regclass)", table).Scan(&size); err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// Load fills the table of idem with records like those that a call leaves, with indexes as compact as a fresh one.
func (b *Booth) Load(ctx context.Context, records int) error {
	hash := idem.HashBytes([]byte(contestant.Payload))
	err := pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "truncate idem.records; alter table idem.records drop constraint records_pkey; drop index idem.records_expires_at_idx",
			pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into idem.records (scope, key, hash, operation_id, created_at, expires_at, state, status, completed_at, body)
			select $1, gen_random_uuid()::text, $2, gen_random_uuid(), now(), now() + interval '24 hours' + n * interval '1 millisecond',
			       'completed', 201, now(), convert_to(repeat('0123456789', 20), 'UTF8')
			from generate_series(1, $3::int) n`, contestant.Scope, hash[:], records)
		return err
	})
	for _, sql := range []string{
		"alter table idem.records add primary key (scope, key)",
		"create index records_expires_at_idx on idem.records (expires_at)",
		"vacuum (analyze) idem.records",
		"checkpoint",
	} {
		if err == nil {
			_, err = b.Pool.Exec(ctx, sql)
		}
	}
	return err
}

// Sample returns about so many of the recorded keys, from everywhere in the table.
func (b *Booth) Sample(ctx context.Context, keys int) ([]string, error) {
	rows, err := b.Pool.Query(ctx, `select key from idem.records
		tablesample bernoulli (least(100, 100.0 * $1 / (select reltuples from pg_class where oid = 'idem.records'::regclass)))
		where scope = $2 and state = 'completed'`, keys, contestant.Scope)
	if err != nil {
		return nil, err
	}
	sample, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(sample) == 0 {
		err = errors.New("no record was found")
	}
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	return sample, nil
}
