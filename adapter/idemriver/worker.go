package idemriver

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Config changes a Worker. The zero value works.
type Config struct {
	// Options are those of idem.Do that matter to work that no caller waits for: idem.WithSealer above all.
	Options []idem.Option

	// Timeout is how long one job may take. Its context ends after that, and another one goes on. The default is an hour.
	Timeout time.Duration

	// Poll is the pause between two looks of Watch. The default is a second.
	Poll time.Duration

	// Logger is told when Watch cannot look. The default is slog.Default().
	Logger *slog.Logger
}

// Worker works on the operations of its definitions. It is a river.Worker: river.AddWorker(workers, idemriver.NewWorker(…)).
type Worker struct {
	river.WorkerDefaults[Job]
	pool        *pgxpool.Pool
	config      Config
	definitions map[string]Runnable
	patience    time.Duration
}

// NewWorker returns a Worker for these definitions. Operations of others are left alone.
func NewWorker(pool *pgxpool.Pool, config Config, definitions ...Runnable) *Worker {
	w := &Worker{pool: pool, config: config, definitions: map[string]Runnable{}, patience: patience}
	if w.config.Timeout <= 0 {
		w.config.Timeout = time.Hour
	}
	if w.config.Poll <= 0 {
		w.config.Poll = time.Second
	}
	if w.config.Logger == nil {
		w.config.Logger = slog.Default()
	}
	for _, d := range definitions {
		w.definitions[d.defined()] = d
	}
	return w
}

// Timeout is that of the Config.
func (w *Worker) Timeout(*river.Job[Job]) time.Duration { return w.config.Timeout }

// Work goes on with the operation until it ends or waits. Another process's it leaves alone. The job is completed then, whatever is
// left to do: Watch makes another one when it is due.
func (w *Worker) Work(ctx context.Context, job *river.Job[Job]) error {
	d := w.definitions[job.Args.Name]
	if d == nil { // a process with other code may know it
		return river.JobSnooze(10*time.Second + rand.N(10*time.Second))
	}
	err := d.resume(ctx, w.pool, job.Args.Operation, w.config.Options)
	switch {
	case err == nil, errors.Is(err, operation.ErrUnknownOperation):
		return nil
	case errors.Is(err, idem.ErrInProgress):
		return w.again(ctx, job)
	case errors.Is(err, operation.ErrParked), errors.Is(err, operation.ErrCanceled), operation.IsFinal(err):
		return river.JobCancel(err) // another attempt of River's would find nothing to do
	}
	return err
}

// again puts a job back that could not take its operation up, and that no other process has taken up since the job was made: a killed
// process may have left a transaction that the server is still ending.
func (w *Worker) again(ctx context.Context, job *river.Job[Job]) error {
	if ctx.Err() != nil {
		return nil
	}
	o, err := operation.Show(ctx, w.pool, job.Args.Operation)
	if err == nil && o.State == operation.StateRunning && o.Epoch == job.Args.Epoch {
		return river.JobSnooze(time.Second / 2)
	}
	return nil
}
