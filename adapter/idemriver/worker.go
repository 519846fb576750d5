package idemriver

import (
	"cmp"
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

// Config configures a Worker. The zero value works.
type Config struct {
	// Options are passed to operation.Definition.Resume. Set those that matter when no caller
	// waits, above all idem.WithSealer.
	Options []idem.Option

	// Timeout is the limit of one job, an hour by default. At the limit, River ends the context of
	// the job, and a later job resumes the operation.
	Timeout time.Duration

	// Poll is the longest time between two searches of Watch for due operations, a second by
	// default.
	Poll time.Duration

	// Logger logs the errors of Watch. The default is slog.Default().
	Logger *slog.Logger
}

// Worker is a river.Worker that runs operations:
//
//	river.AddWorker(workers, idemriver.NewWorker(…))
type Worker struct {
	river.WorkerDefaults[Job]
	pool        *pgxpool.Pool
	config      Config
	definitions map[string]Runnable
	startLimit  time.Duration // the constant startLimit; tests set another value
}

// NewWorker returns a Worker that runs the operations of these definitions. It snoozes the jobs for
// operations of other definitions.
func NewWorker(pool *pgxpool.Pool, config Config, definitions ...Runnable) *Worker {
	w := &Worker{pool: pool, config: config, definitions: map[string]Runnable{}, startLimit: startLimit}
	if w.config.Timeout <= 0 {
		w.config.Timeout = time.Hour
	}
	if w.config.Poll <= 0 {
		w.config.Poll = time.Second
	}
	w.config.Logger = cmp.Or(config.Logger, slog.Default())
	for _, d := range definitions {
		w.definitions[d.definedName()] = d
	}
	return w
}

// Timeout returns Config.Timeout.
func (w *Worker) Timeout(*river.Job[Job]) time.Duration { return w.config.Timeout }

// Work implements river.Worker. It runs the operation of the job until the operation ends or waits.
// The job then completes. If another process runs the operation, the job completes at once. Watch
// inserts another job when the operation is due.
func (w *Worker) Work(ctx context.Context, job *river.Job[Job]) error {
	d := w.definitions[job.Args.Name]
	if d == nil { // a process with another release may have the definition
		return river.JobSnooze(10*time.Second + rand.N(10*time.Second))
	}
	err := d.resume(ctx, w.pool, job.Args.Operation, w.config.Options)
	switch {
	case err == nil, errors.Is(err, operation.ErrUnknownOperation), errors.Is(err, idem.ErrInProgress):
		return nil
	case errors.Is(err, operation.ErrParked), errors.Is(err, operation.ErrCanceled), operation.IsFinal(err):
		return river.JobCancel(err) // another attempt of River would have nothing to do
	}
	return err
}
