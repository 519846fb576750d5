package checkout

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/torture/bank"
	"github.com/idem-go/idem/torture/history"
)

// Finish works on what is left when all workers have ended, until every operation has ended or is parked, or ctx ends. The
// database is told that the workers are gone whose leases go on, and that what was to be looked at later is due.
func Finish(ctx context.Context, c Config, pool *pgxpool.Pool, writer *history.Writer) error {
	if _, err := pool.Exec(ctx, "DELETE FROM idem.leases"); err != nil {
		return err
	}
	s := &shop{slot: c.Slot, calm: true, pool: pool, bank: bank.NewClient(c.Bank), history: writer}
	s.define()
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		config := operation.WorkerConfig{Concurrency: 32, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
		ended <- operation.NewWorker(pool, config, s.checkout).Run(working)
	}()
	err := awaitEnd(ctx, pool)
	stop()
	if ended := <-ended; err == nil {
		err = ended
	}
	return err
}

// awaitEnd returns when no operation runs, or ctx has ended.
func awaitEnd(ctx context.Context, pool *pgxpool.Pool) error {
	const due = "UPDATE idem.operations SET wake_at = clock_timestamp() WHERE state = 'running' AND wake_at > clock_timestamp() + '2 s'"
	const left = "SELECT count(*) FROM idem.operations WHERE state = 'running'"
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
