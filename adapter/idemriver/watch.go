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

// maxJobs is the maximum number of due operations for which one call of insertDue inserts jobs.
const maxJobs = 1000

// startLimit is how long Watch waits for the operation of a job that has begun. If no process runs
// the operation by then, Watch inserts another job.
const startLimit = 2 * time.Second

// Watch inserts a job for each operation that is due and that no process runs, until ctx ends. For
// example, an operation becomes due when its process is killed, when its sleep ends, or when a
// signal is sent to it. Run Watch in every process that has a River client. It survives outages.
//
// If several processes run Watch, each inserts a job with the same arguments, and River stores one
// of these jobs. Two seconds or more after the insert, Watch inserts another job if the first job
// has begun and still no process runs the operation. This happens if a process was killed between
// the start of the first job and the start of the operation, or if the first job found the
// operation locked.
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

// madeJob is the latest job that this process has inserted for an operation and its epoch.
type madeJob struct {
	round int
	looks int
	until time.Time // operation.Due leaves the operation out until this time
}

// insertDue inserts a job for each operation that is due. It reads the jobs of its earlier calls
// from the map made, and adds the new ones.
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
		m.until = begun.Add(w.startLimit << min(m.looks, 8)) // the wait doubles, because the job may be in a long queue
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

// insert inserts the jobs. For a job that already exists, it returns the existing job.
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
