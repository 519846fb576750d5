package out

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem/lab/bench/runner"
)

// River inserts a job for each message in the transaction, and a worker publishes it. A job may be
// executed more than once, and jobs have no order. FetchCooldown and FetchPollInterval have the
// values of River's own benchmark.
func River() Contestant {
	return Contestant{
		Name: "River, a job per message", Relays: true,
		Prepare: runner.MigrateRiver,
		Open: func(place Place) (Runner, error) {
			r := &riverRunner{place: place}
			workers := river.NewWorkers()
			river.AddWorker(workers, river.WorkFunc(r.work))
			config := &river.Config{
				Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 200}}, Logger: slog.New(slog.DiscardHandler),
				FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
			}
			if place.Patience > 0 {
				config.JobTimeout, config.RescueStuckJobsAfter, config.RetryPolicy = place.Patience, place.Patience, soon{}
			}
			var err error
			r.client, err = river.NewClient(riverpgxv5.New(place.Pool), config)
			return r, err
		},
	}
}

// soon retries a rescued job after a second. The default delay is 16 s for the second attempt and
// 81 s for the third.
type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Second) }

type publishArgs struct {
	ID      string `json:"id"`
	Topic   string `json:"topic"`
	Key     string `json:"key"`
	Payload []byte `json:"payload"`
}

func (publishArgs) Kind() string { return "publish" }

func argsOf(order Order) publishArgs {
	return publishArgs{ID: order.ID, Topic: topic, Key: keyOf(order), Payload: order.payload()}
}

type riverRunner struct {
	place  Place
	client *river.Client[pgx.Tx]
}

func (r *riverRunner) work(ctx context.Context, job *river.Job[publishArgs]) error {
	return r.place.Sink.Publish(ctx, job.Args.ID)
}

func (r *riverRunner) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, r.place.Pool, func(tx pgx.Tx) error {
		if err := save(ctx, tx, order); err != nil {
			return err
		}
		_, err := r.client.InsertTx(ctx, tx, argsOf(order), nil)
		return err
	})
}

// stopping is the maximum time for finishing the jobs in progress.
const stopping = 10 * time.Second

func (r *riverRunner) Relay(ctx context.Context) error {
	if err := r.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopping)
	defer cancel()
	return r.client.Stop(stop)
}
