package contestant

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River uses one River job per remaining step. The caller's transaction reserves the order and
// inserts the first job. The first job charges the order, and completes itself in the transaction
// that inserts the second job. The second job confirms the order and completes itself in one
// transaction. Then the process wakes the caller.
//
// After a crash, River rescues the interrupted jobs when the time RescueStuckJobsAfter has passed.
// The default is an hour, and the value must be longer than any job runs. In a single process,
// FetchCooldown and FetchPollInterval have the values of River's own benchmark. With several
// processes, they have their defaults.
var River = Contestant{
	Name: "River, a job per step",
	Prepare: func(ctx context.Context, dsn string) error {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		return err
	},
	Open: openRiver,
}

type riverRunner struct {
	Place
	client *river.Client[pgx.Tx]

	mu      sync.Mutex
	waiting map[string]chan struct{}
}

func openRiver(ctx context.Context, place Place) (Do, error) {
	r := &riverRunner{Place: place, waiting: map[string]chan struct{}{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(r.charge))
	river.AddWorker(workers, river.WorkFunc(r.confirm))
	config := &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 200}},
		Logger: slog.New(slog.DiscardHandler),
	}
	if !place.Fleet {
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	if place.Patience > 0 {
		config.JobTimeout, config.RescueStuckJobsAfter = place.Patience, place.Patience
	}
	var err error
	if r.client, err = river.NewClient(riverpgxv5.New(place.Pool), config); err != nil {
		return nil, err
	}
	place.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.client.Stop(ctx)
	})
	return r.do, r.client.Start(context.WithoutCancel(ctx))
}

type chargeArgs struct {
	Order string `json:"order"`
}

func (chargeArgs) Kind() string { return "charge" }

type confirmArgs struct {
	Order  string `json:"order"`
	Charge string `json:"charge"`
}

func (confirmArgs) Kind() string { return "confirm" }

func (r *riverRunner) charge(ctx context.Context, job *river.Job[chargeArgs]) error {
	order := job.Args.Order
	charge, err := r.Bank.Charge(ctx, order, keyOf(order))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if _, err := r.client.InsertTx(ctx, tx, confirmArgs{order, charge}, nil); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func (r *riverRunner) confirm(ctx context.Context, job *river.Job[confirmArgs]) error {
	err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if err := confirm(ctx, tx, job.Args.Order, job.Args.Charge); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		r.notify(job.Args.Order)
	}
	return err
}

func (r *riverRunner) do(ctx context.Context, order string) error {
	done := make(chan struct{})
	r.mu.Lock()
	r.waiting[order] = done
	r.mu.Unlock()
	err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if err := reserve(ctx, tx, order); err != nil {
			return err
		}
		_, err := r.client.InsertTx(ctx, tx, chargeArgs{order}, nil)
		return err
	})
	if err != nil || r.Fleet {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notify wakes the caller that waits for an order, if the caller is in this process.
func (r *riverRunner) notify(order string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done, ok := r.waiting[order]; ok {
		close(done)
		delete(r.waiting, order)
	}
}
