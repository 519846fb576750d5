package in

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/runner"
)

// River inserts a unique job for each message and then acknowledges the message. The job completes
// itself in the transaction of the effect. A job is unique as long as River keeps it, 24 hours by
// default. FetchCooldown and FetchPollInterval have the values of River's own benchmark.
// InsertManyFast cannot be used: it would reject all jobs if one of them exists.
func River() Contestant {
	return Contestant{
		Name:    "River, unique jobs",
		Prepare: runner.MigrateRiver,
		Consume: consumeRiver,
	}
}

type effectArgs struct {
	ID      string `json:"id" river:"unique"`
	Payload []byte `json:"payload"`
}

func (effectArgs) Kind() string { return "effect" }

func consumeRiver(ctx context.Context, place Place) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[effectArgs]) error {
		return pgx.BeginFunc(ctx, place.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertEffect, job.Args.ID); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
	}))
	most := 100
	if place.Workers == 1 {
		most, place.Batch = 1, min(place.Batch, 100) // jobs one after another are slow
	}
	config := &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: most}}, Logger: quiet,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
	}
	if place.Patience > 0 {
		config.JobTimeout, config.RescueStuckJobsAfter = place.Patience, place.Patience
	}
	client, err := river.NewClient(riverpgxv5.New(place.Pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	taken := intake{
		store: func(ctx context.Context, all []broker.Delivery) error {
			jobs := make([]river.InsertManyParams, len(all))
			for i, d := range all {
				jobs[i] = river.InsertManyParams{Args: effectArgs{d.ID, d.Payload}, InsertOpts: &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}}
			}
			_, err := client.InsertMany(ctx, jobs)
			return err
		},
		left: `select count(*) from river_job where state in ('available', 'running', 'retryable', 'scheduled', 'pending')`,
	}
	err = taken.run(ctx, place)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, client.Stop(stop))
}
