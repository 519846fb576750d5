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

// maxJobs is the maximum of jobs that Watch inserts at a time.
const maxJobs = 1000

// startLimit is how long a job that has begun may take until a process runs its operation.
const startLimit = 2 * time.Second

// Watch inserts a job for each operation that is due and that no process runs, until ctx ends:
// operations of killed processes, and operations whose sleep has ended or that got a signal. Run it
// in every process that has a River client. It survives outages.
//
// Every process inserts a job with the same arguments, and River keeps one of these jobs. Two
// seconds or more after the insert, Watch inserts another job if the first one has begun and still
// no process runs the operation. In that case the process of the first job was killed before it
// began the operation, or the job found the operation locked.
func (w *Worker) Watch(ctx context.Context, client *river.Client[pgx.Tx]) {
	made := map[operation.Pending]madeJob{}
	for ctx.Err() == nil {
		if err := w.insertDue(ctx, client, made); err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "idemriver: cannot look for operations that are due; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.config.Poll - rand.N(w.config.Poll/4+1)):
		}
	}
}

// madeJob is a job that was inserted for an operation in an epoch.
type madeJob struct {
	round int
	looks int
	until time.Time // when the operation is looked at again
}

// insertDue inserts the jobs of the operations that are due. made has the jobs of the earlier
// calls.
func (w *Worker) insertDue(ctx context.Context, client *river.Client[pgx.Tx], made map[operation.Pending]madeJob) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	begun := time.Now()
	var recent []operation.Pending
	for p, job := range made {
		if begun.Before(job.until) {
			recent = append(recent, p)
		}
	}
	due, err := operation.Due(ctx, w.pool, slices.Collect(maps.Keys(w.definitions)), maxJobs, recent...)
	if err != nil {
		return err
	}
	jobs := make([]Job, len(due))
	for i, p := range due {
		jobs[i] = Job{Operation: p.ID, Name: p.Name, Epoch: p.Epoch, Round: made[p].round}
	}
	results, err := w.insert(ctx, client, jobs)
	if err != nil {
		return err
	}
	next, stuck := map[operation.Pending]madeJob{}, []Job(nil)
	for i, job := range jobs {
		m := made[due[i]]
		if m.looks > 0 && !isWaiting(results[i].Job.State) {
			m = madeJob{round: m.round + 1}
			job.Round = m.round
			stuck = append(stuck, job)
		}
		m.until = begun.Add(w.startLimit << min(m.looks, 8)) // a queue may be long
		m.looks++
		next[due[i]] = m
	}
	if _, err := w.insert(ctx, client, stuck); err != nil {
		return err
	}
	maps.DeleteFunc(made, func(_ operation.Pending, m madeJob) bool { return !begun.Before(m.until) })
	maps.Copy(made, next)
	return nil
}

// isWaiting reports whether a job has not begun yet.
func isWaiting(s rivertype.JobState) bool {
	switch s {
	case rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateScheduled:
		return true
	}
	return false
}

// insert inserts the jobs, and returns the existing ones where a job exists already.
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
