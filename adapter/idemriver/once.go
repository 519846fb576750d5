package idemriver

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/inbox"
)

// OnceConfig changes a OnceWorker. The zero value works.
type OnceConfig struct {
	// Options are those of the inbox: attempts, pauses.
	Options []inbox.Option
	// Timeout is how long one attempt may take. The default is the client's JobTimeout.
	Timeout time.Duration
	// Logger is told why an attempt was undone for which no message is to blame. The default is slog.Default().
	Logger *slog.Logger
}

// OnceWorker is a river.Worker whose jobs take effect once, however often River works on them. It is for a [Message], and for
// any other job as well.
type OnceWorker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	pool   *pgxpool.Pool
	name   string
	fn     func(tx pgx.Tx, job *river.Job[T]) error
	config OnceConfig
}

// NewOnceWorker returns a worker whose effect is what fn does in tx. The inbox knows a [Message] by its topic and id, and another
// job by its kind and River's id. Another consumer of the same messages is another name.
//
// What fn does may be rolled back, and fn called again. The inbox counts attempts, says when the next one is, and writes dead letters: a
// job waits as snoozed meanwhile, and is cancelled when it is dead.
func NewOnceWorker[T river.JobArgs](pool *pgxpool.Pool, name string, fn func(tx pgx.Tx, job *river.Job[T]) error, config OnceConfig) *OnceWorker[T] {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &OnceWorker[T]{pool: pool, name: name, fn: fn, config: config}
}

// Timeout is that of the OnceConfig.
func (w *OnceWorker[T]) Timeout(*river.Job[T]) time.Duration { return w.config.Timeout }

// Work is called by River.
func (w *OnceWorker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	out, err := inbox.Handle(ctx, w.pool, w.name, messageOf(job), func(tx pgx.Tx) error { return w.fn(tx, job) }, w.config.Options...)
	switch out.State {
	case inbox.Done, inbox.Duplicate:
		return nil
	case inbox.Dead:
		return river.JobCancel(out.Err)
	case inbox.Retry: // an error would be one of the attempts after which River discards a job
		if err != nil {
			w.config.Logger.WarnContext(ctx, "idemriver: cannot handle messages", "consumer", w.name, "job", job.ID, "error", err)
		}
		return river.JobSnooze(max(0, time.Until(out.RetryAt)))
	}
	return err
}

// messageOf is the job as the inbox has it.
func messageOf[T river.JobArgs](job *river.Job[T]) inbox.Message {
	if m, ok := any(job.Args).(Message); ok {
		return inbox.Message{Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload, Deliveries: job.Attempt}
	}
	return inbox.Message{Source: job.Kind, ID: strconv.FormatInt(job.ID, 10), Payload: job.EncodedArgs, Deliveries: job.Attempt}
}
