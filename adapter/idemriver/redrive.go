package idemriver

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem/inbox"
)

// RunRedrives handles dead letters that are to be tried again, until ctx ends: their jobs are cancelled, and River does not work on them
// any more. It runs beside the client. The job that fn gets has the arguments and, if it is no [Message], the ID of the one that died.
func (w *OnceWorker[T]) RunRedrives(ctx context.Context) error {
	return inbox.RunRedrives(ctx, w.pool, w.name, func(tx pgx.Tx, m inbox.Message) error {
		job, err := redriven[T](m)
		if err != nil {
			return err
		}
		return w.fn(tx, job)
	}, inbox.RedriveConfig{Options: w.config.Options, Logger: w.config.Logger})
}

// redriven is the opposite of messageOf.
func redriven[T river.JobArgs](m inbox.Message) (*river.Job[T], error) {
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
		return nil, fmt.Errorf("idemriver: a dead letter is no job of this worker: %w", err)
	}
	return job, nil
}
