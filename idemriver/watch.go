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
// All processes make the same job, of which River takes one. If nothing has come of it after 10 seconds, because its process was killed
// before it began, they make another one, and then after twice as long each time.
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

// round is a job that was made, and when there has to be another one.
type round struct {
	number int
	until  time.Time
}

// patience is how long a job may take until somebody works on its operation, before another one is made.
const patience = 10 * time.Second

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
	next, params := map[string]round{}, make([]river.InsertManyParams, 0, len(jobs))
	for _, job := range jobs {
		at := fmt.Sprint(job.Operation, "/", job.Epoch)
		if r, again := made[at]; again {
			job.Round = r.number + 1
		}
		next[at] = round{number: job.Round, until: begun.Add(w.patience << min(job.Round, 8))}
		params = append(params, river.InsertManyParams{Args: job, InsertOpts: w.definitions[job.Name].insertOpts()})
	}
	if len(params) > 0 {
		if _, err := client.InsertMany(ctx, params); err != nil {
			return err
		}
	}
	maps.DeleteFunc(made, func(_ string, r round) bool { return !begun.Before(r.until) })
	maps.Copy(made, next)
	return nil
}
