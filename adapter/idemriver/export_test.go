package idemriver

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/operation"
)

// Watcher runs the steps of Watch one at a time.
type Watcher struct {
	*Worker
	made map[operation.Pending]madeJob
}

func NewWatcher(w *Worker) *Watcher { return &Watcher{w, map[operation.Pending]madeJob{}} }

// InsertDue inserts the jobs of the operations that are due.
func (w *Watcher) InsertDue(ctx context.Context, client *river.Client[pgx.Tx]) error {
	return w.insertDue(ctx, client, w.made)
}

// SetStartLimit sets how long a job that has begun may take until a process runs its operation.
func (w *Worker) SetStartLimit(d time.Duration) { w.startLimit = d }
