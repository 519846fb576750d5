package idemriver

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// atOnce bounds what one look makes jobs of.
const atOnce = 1000

// due are the operations that are due and that nobody works on who is there, as package operation sees it.
const due = `SELECT o.id::pg_catalog.text, o.name, o.epoch
FROM idem.operations o
WHERE o.state OPERATOR(pg_catalog.=) 'running'
  AND o.name OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[])
  AND (o.wake_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
       OR o.id OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT s.operation_id FROM idem.signals s
            JOIN idem.operations w ON w.id OPERATOR(pg_catalog.=) s.operation_id
            WHERE NOT s.taken AND w.state OPERATOR(pg_catalog.=) 'running' AND w.step OPERATOR(pg_catalog.=) s.name)))
  AND (o.owner IS NULL OR o.owner OPERATOR(pg_catalog.<>) ALL (ARRAY(
            SELECT l.objid::pg_catalog.int8::pg_catalog.int4 FROM pg_catalog.pg_locks l
            WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 2
              AND l.classid OPERATOR(pg_catalog.=) (1768187247::pg_catalog.int8)::pg_catalog.oid
              AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            UNION ALL
            SELECT e.instance FROM idem.leases e WHERE e.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())))
  AND (o.id::pg_catalog.text OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) o.epoch::pg_catalog.text) OPERATOR(pg_catalog.<>) ALL ($2::pg_catalog.text[])
ORDER BY o.wake_at
LIMIT $3`

// Watch makes a job of every operation that is due and that nobody works on, until ctx ends: of what a killed process has left, what
// has slept long enough, and what was sent a signal. Run it in every process that has a River client. It goes on through outages.
//
// All processes make the same job, of which River takes one. If that has begun, and two seconds later nobody works on the operation,
// the job's process was killed before it came to it: then there is another job.
func (w *Worker) Watch(ctx context.Context, client *river.Client[pgx.Tx]) {
	made := map[string]round{}
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
	until  time.Time // when to look what has become of it
}

// patience is how long a job may take, once it has begun, until somebody works on its operation.
const patience = 2 * time.Second

// look makes jobs. made has an entry for each operation and epoch that one was made for.
func (w *Worker) look(ctx context.Context, client *river.Client[pgx.Tx], made map[string]round) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	begun := time.Now()
	recent := []string{}
	for at, r := range made {
		if begun.Before(r.until) {
			recent = append(recent, at)
		}
	}
	rows, err := w.pool.Query(ctx, due, slices.Collect(maps.Keys(w.definitions)), recent, atOnce)
	if err != nil {
		return err
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (job Job, err error) {
		return job, row.Scan(&job.Operation, &job.Name, &job.Epoch)
	})
	if err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].Round = made[jobs[i].at()].number
	}
	results, err := w.insert(ctx, client, jobs)
	if err != nil {
		return err
	}
	next, stuck := map[string]round{}, []Job(nil)
	for i, job := range jobs {
		r := made[job.at()]
		if r.looks > 0 && !waits(results[i].Job.State) {
			r = round{number: r.number + 1}
			job.Round = r.number
			stuck = append(stuck, job)
		}
		r.until = begun.Add(w.patience << min(r.looks, 8)) // a queue may be long
		r.looks++
		next[job.at()] = r
	}
	if _, err := w.insert(ctx, client, stuck); err != nil {
		return err
	}
	maps.DeleteFunc(made, func(_ string, r round) bool { return !begun.Before(r.until) })
	maps.Copy(made, next)
	return nil
}

// at is what one job is made of.
func (j Job) at() string { return fmt.Sprint(j.Operation, "/", j.Epoch) }

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
