package idemriver

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/operation"
)

// Looker looks as Watch does, one look at a time.
type Looker struct {
	*Worker
	made map[operation.Pending]round
}

func NewLooker(w *Worker) *Looker { return &Looker{w, map[operation.Pending]round{}} }

func (l *Looker) Look(ctx context.Context, client *river.Client[pgx.Tx]) error {
	return l.look(ctx, client, l.made)
}

// Patient sets how long a Worker waits for something to come of a job.
func (w *Worker) Patient(d time.Duration) { w.patience = d }
