// Package stats reads figures about the tables of idem: how many records there are, how many of
// them have expired, how far the purge is, what is in progress, and how many messages and
// operations need a person. Package idemotel exports these figures as gauges, and the command idem
// stats prints them.
//
//	s, err := stats.Read(ctx, pool)
//
// Read takes milliseconds on a table of a hundred million records, because it reads no record. The
// figures come from the catalog, the planner statistics, the locks and short index scans. A Figure
// says whether its value is exact, an estimate or unknown. If the value is not exact, the Figure
// says why. A role that may not read a table still gets every figure that needs no access to it.
package stats

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/statsdb"
)

// ErrNoSchema means that the database has no table idem.records.
var ErrNoSchema = errors.New("stats: the database has no table idem.records; run the migrations of package migrations")

// Stats are the figures that one call of Read has read.
type Stats struct {
	ReadAt     time.Time // by the clock of the database
	Records    Records
	Tables     []Table // every table of the schema idem, ordered by name
	InFlight   InFlight
	Operations Figure[Operations]
	Messages   Figure[Messages]
	Acts       Figure[[]ActCount] // manual actions in the last day, with an entry for each kind of act
	Purge      Purge
}

// DB is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Read reads the figures with seven statements. It returns ErrNoSchema if the migrations have not
// been run.
//
// If db is a transaction and the role may not read a table, the failed statement aborts the
// transaction. Read then reports the figures of this table, and the figures of all later
// statements, as unknown.
func Read(ctx context.Context, db DB) (Stats, error) {
	parts, err := statsdb.Parts(ctx, db)
	if err != nil {
		return Stats{}, err
	}
	if len(parts) == 0 {
		return Stats{}, ErrNoSchema
	}
	inFlight, err := statsdb.InFlight(ctx, db)
	if err != nil {
		return Stats{}, err
	}
	tables, err := statsdb.Tables(ctx, db, tableNames)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{ReadAt: timeOf(parts[0].At), InFlight: newInFlight(inFlight), Tables: newTables(tables)}

	sweeps, err := statsdb.Sweeps(ctx, db)
	if s.Purge.Sweeps, err = newSweeps(sweeps, s.ReadAt, err); err != nil {
		return Stats{}, err
	}
	operations, err := statsdb.Operations(ctx, db)
	if s.Operations, err = newOperations(operations, err); err != nil {
		return Stats{}, err
	}
	messages, err := statsdb.Messages(ctx, db, MaxCount)
	if s.Messages, err = newMessages(messages, err); err != nil {
		return Stats{}, err
	}
	acts, err := statsdb.Acts(ctx, db, MaxCount)
	if s.Acts, err = newActs(acts, err); err != nil {
		return Stats{}, err
	}
	sweep := s.Purge.Sweep("records")
	s.Records = newRecords(parts, sweep, s.ReadAt)
	s.Purge.rate(sweep, s.Records.OldestExpired, s.ReadAt)
	return s, nil
}

// tryReadLock is the key of the advisory lock of TryRead: the first eight bytes of the SHA-256 of
// "idem.stats/1".
const tryReadLock int64 = -2784471438544736350

// TryRead calls Read, unless another process is running TryRead on the same database. In that case
// TryRead reads nothing and ok is false. Use it where many processes export the same figures.
func TryRead(ctx context.Context, pool *pgxpool.Pool) (s Stats, ok bool, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return Stats{}, false, err
	}
	defer func() { // Nothing was written. The timeout ends a ROLLBACK that the server does not answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		tx.Rollback(ctx)
	}()
	lock, err := statsdb.TryLock(ctx, tx, tryReadLock)
	if err != nil || !lock.Locked {
		return Stats{}, false, err
	}
	s, err = Read(ctx, tx)
	return s, err == nil, err
}
