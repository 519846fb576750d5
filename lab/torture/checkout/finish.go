package checkout

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// finishAll runs the remaining operations after all workers have ended, until each operation has
// ended or ctx ends.
//
// It deploys one release after the other, because some release has all recorded steps of an
// operation: the one that recorded the last step. After each release it handles all parked
// operations as a person would. Leases of the workers are deleted and long sleeps are shortened, so
// that nothing waits.
//
// A release gets at most half of the remaining time, so that an operation without progress does not
// block the others. The audit reports what has not ended when ctx ends.
func (s *shop) finishAll(ctx context.Context) error {
	s.calm, s.pool = true, s.pools[1] // the larger one
	if _, err := s.pool.Exec(ctx, "DELETE FROM idem.leases"); err != nil {
		return err
	}
	if _, err := s.seeToAll(ctx); err != nil {
		return err
	}
	const rounds = 5
	for deployed := range rounds * journal.Releases {
		s.release = journal.Releases - 1 - deployed%journal.Releases
		s.define()
		err := s.finish(ctx)
		left := 0
		if err == nil {
			left, err = s.seeToAll(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || left == 0:
			return err
		}
	}
	if err := s.finish(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// finish runs a Worker until no operation is running, or half of the time of ctx has passed.
func (s *shop) finish(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		bounded, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = bounded
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		config := operation.WorkerConfig{Concurrency: 32, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
		ended <- operation.NewWorker(s.pool, config, s.checkout, s.walkIn, s.part).Run(working)
	}()
	err := awaitEnd(ctx, s.pool)
	stop()
	if ended := <-ended; err == nil {
		err = ended
	}
	return err
}

// seeToAll handles all parked operations as a person would, and returns their number.
func (s *shop) seeToAll(ctx context.Context) (int, error) {
	rows, err := s.pool.Query(ctx, "SELECT id::text FROM idem.operations WHERE state = 'parked'")
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range ids {
		s.seeTo(ctx, id)
	}
	return len(ids), err
}

// awaitEnd waits until no operation is running, except those that await a parked child, or ctx
// ends.
func awaitEnd(ctx context.Context, pool *pgxpool.Pool) error {
	const due = "UPDATE idem.operations SET wake_at = clock_timestamp() WHERE state = 'running' AND kind <> 'child' AND wake_at > clock_timestamp() + '2 s'"
	const left = `WITH RECURSIVE waits AS (
		SELECT parent AS id FROM idem.operations WHERE state = 'parked'
		UNION SELECT o.parent FROM idem.operations o JOIN waits w ON w.id = o.id)
	SELECT count(*) FROM idem.operations WHERE state = 'running' AND NOT EXISTS (SELECT FROM waits w WHERE w.id = operations.id)`
	for ctx.Err() == nil {
		var running int
		if _, err := pool.Exec(ctx, due); err != nil && ctx.Err() == nil {
			return err
		}
		if err := pool.QueryRow(ctx, left).Scan(&running); err != nil && ctx.Err() == nil {
			return err
		}
		if running == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
