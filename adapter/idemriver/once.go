package idemriver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem/inbox"
)

// OnceConfig configures a OnceWorker. The zero value works.
type OnceConfig struct {
	// Options are passed to inbox.Handle, for example inbox.WithMaxAttempts and inbox.WithBackoff.
	Options []inbox.Option
	// Timeout is the limit of one attempt. The default is the client's JobTimeout.
	Timeout time.Duration
	// Logger logs the attempts that failed for a reason outside of the message, such as an
	// unavailable database. The default is slog.Default().
	Logger *slog.Logger
}

// OnceWorker is a river.Worker that gives each job its effect once, however often River works on
// the job. T is [Message], or the arguments of any other kind of job.
type OnceWorker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	pool   *pgxpool.Pool
	name   string
	fn     func(tx pgx.Tx, job *river.Job[T]) error
	config OnceConfig
}

// NewOnceWorker returns a OnceWorker. fn makes the effect of a job on tx. The worker may roll tx
// back and call fn again. name is the consumer in the inbox. The inbox identifies a job by its kind
// and River's ID, or, if T is [Message], by the topic and the ID of the message.
//
// The inbox counts attempts, schedules the next one and stores dead letters. Until the next attempt
// is due, the job is snoozed. A job that has become a dead letter is canceled.
func NewOnceWorker[T river.JobArgs](pool *pgxpool.Pool, name string, fn func(tx pgx.Tx, job *river.Job[T]) error, config OnceConfig) *OnceWorker[T] {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &OnceWorker[T]{pool: pool, name: name, fn: fn, config: config}
}

// Timeout returns OnceConfig.Timeout.
func (w *OnceWorker[T]) Timeout(*river.Job[T]) time.Duration { return w.config.Timeout }

// Work implements river.Worker.
func (w *OnceWorker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	out, err := inbox.Handle(ctx, w.pool, w.name, messageOf(job), func(tx pgx.Tx) error { return w.fn(tx, job) }, w.config.Options...)
	switch out.State {
	case inbox.Done, inbox.Duplicate:
		return nil
	case inbox.Dead:
		return river.JobCancel(out.Err)
	case inbox.Retry: // a returned error would use up one of River's attempts, a snooze does not
		if err != nil {
			w.config.Logger.WarnContext(ctx, "idemriver: cannot handle a message; trying again", "consumer", w.name, "job", job.ID, "error", err)
		}
		return river.JobSnooze(max(0, time.Until(out.RetryAt)))
	}
	return err
}

// messageOf converts a job to a message for the inbox.
func messageOf[T river.JobArgs](job *river.Job[T]) inbox.Message {
	if m, ok := any(job.Args).(Message); ok {
		return inbox.Message{Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload, Deliveries: job.Attempt}
	}
	return inbox.Message{Source: job.Kind, ID: strconv.FormatInt(job.ID, 10), Payload: job.EncodedArgs, Deliveries: job.Attempt}
}

// RunRedrives handles redriven dead letters until ctx ends. River does not work on them, because
// their jobs were canceled. Run it in a goroutine while the client runs. The function of the worker
// gets a job with the arguments of the canceled job. The job has the ID of the canceled job, or no
// ID if T is [Message].
func (w *OnceWorker[T]) RunRedrives(ctx context.Context) error {
	return inbox.RunRedrives(ctx, w.pool, w.name, func(tx pgx.Tx, m inbox.Message) error {
		job, err := jobOf[T](m)
		if err != nil {
			return err
		}
		return w.fn(tx, job)
	}, inbox.RedriveConfig{Options: w.config.Options, Logger: w.config.Logger})
}

// jobOf converts a redriven message of the inbox back to a job. It is the inverse of messageOf.
func jobOf[T river.JobArgs](m inbox.Message) (*river.Job[T], error) {
	job := &river.Job[T]{JobRow: &rivertype.JobRow{Kind: m.Source, EncodedArgs: m.Payload}}
	if args, ok := any(&job.Args).(*Message); ok {
		*args = Message{ID: m.ID, Topic: m.Source, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
		encoded, err := json.Marshal(args)
		job.Kind, job.EncodedArgs = args.Kind(), encoded
		return job, err
	}
	var err error
	if job.ID, err = strconv.ParseInt(m.ID, 10, 64); err == nil {
		err = json.Unmarshal(m.Payload, &job.Args)
	}
	if err != nil {
		return nil, fmt.Errorf("idemriver: the dead letter is not a job of this worker: %w; redrive it with the worker of its kind", err)
	}
	return job, nil
}
