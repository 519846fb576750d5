package idemriver

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem/operation"
)

// atOnce bounds what one look makes jobs of.
const atOnce = 1000

// Watch makes a job of every operation that is due and that no process works on, until ctx ends: of what a killed process has left, what
// has slept long enough, and what was sent a signal. Run it in every process that has a River client. It goes on through outages.
//
// All processes make the same job, of which River takes one. If that has begun, and two seconds later no process works on the operation,
// the job's process was killed before it came to it: then there is another job.
func (w *Worker) Watch(ctx context.Context, client *river.Client[pgx.Tx]) {
	made := map[operation.Pending]round{}
	for ctx.Err() == nil {
		if err := w.look(ctx, client, made); err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "idemriver: cannot look for operations that are due", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.config.Poll - rand.N(w.config.Poll/4+1)):
		}
	}
}

// round is a job that was made.
type round struct {
	number int
	looks  int
	until  time.Time // when to look at it again
}

// patience is how long a job may take, once it has begun, until a process works on its operation.
const patience = 2 * time.Second

// look makes jobs. made has an entry for each operation and epoch that one was made for.
func (w *Worker) look(ctx context.Context, client *river.Client[pgx.Tx], made map[operation.Pending]round) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	begun := time.Now()
	var recent []operation.Pending
	for p, r := range made {
		if begun.Before(r.until) {
			recent = append(recent, p)
		}
	}
	due, err := operation.Due(ctx, w.pool, slices.Collect(maps.Keys(w.definitions)), atOnce, recent...)
	if err != nil {
		return err
	}
	jobs := make([]Job, len(due))
	for i, p := range due {
		jobs[i] = Job{Operation: p.ID, Name: p.Name, Epoch: p.Epoch, Round: made[p].number}
	}
	results, err := w.insert(ctx, client, jobs)
	if err != nil {
		return err
	}
	next, stuck := map[operation.Pending]round{}, []Job(nil)
	for i, job := range jobs {
		r := made[due[i]]
		if r.looks > 0 && !waits(results[i].Job.State) {
			r = round{number: r.number + 1}
			job.Round = r.number
			stuck = append(stuck, job)
		}
		r.until = begun.Add(w.patience << min(r.looks, 8)) // a queue may be long
		r.looks++
		next[due[i]] = r
	}
	if _, err := w.insert(ctx, client, stuck); err != nil {
		return err
	}
	maps.DeleteFunc(made, func(_ operation.Pending, r round) bool { return !begun.Before(r.until) })
	maps.Copy(made, next)
	return nil
}

// waits reports whether a job is still to be begun.
func waits(s rivertype.JobState) bool {
	switch s {
	case rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateScheduled:
		return true
	}
	return false
}

// insert inserts the jobs, or finds those that are there.
func (w *Worker) insert(ctx context.Context, client *river.Client[pgx.Tx], jobs []Job) ([]*rivertype.JobInsertResult, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	params := make([]river.InsertManyParams, len(jobs))
	for i, job := range jobs {
		params[i] = river.InsertManyParams{Args: job, InsertOpts: w.definitions[job.Name].insertOpts()}
	}
	return client.InsertMany(ctx, params)
}
