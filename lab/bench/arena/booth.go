package arena

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
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

// Clock reads the processor time of the contestant. It takes the numbers that the server has for its processes as those of this
// machine, which they are unless the server is in a container.
func (b *Booth) Clock() measure.Clock {
	return measure.Clock{Admin: b.Pool, Database: b.Pool.Config().ConnConfig.Database}
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
