package idemriver

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem"
)

// Looker looks as Watch does, one look at a time.
type Looker struct {
	*Worker
	made map[string]round
}

func NewLooker(w *Worker) *Looker { return &Looker{w, map[string]round{}} }

func (l *Looker) Look(ctx context.Context, client *river.Client[pgx.Tx]) error {
	return l.look(ctx, client, l.made)
}

// Patient sets how long a Worker waits for something to come of a job.
func (w *Worker) Patient(d time.Duration) { w.patience = d }

// ResumeAs goes on with the operation of a key as if it had been that of the id a moment ago.
func ResumeAs(ctx context.Context, pool *pgxpool.Pool, d Runnable, id, scope, key string, hash idem.Hash) error {
	return d.resume(ctx, pool, &found{id: id, scope: scope, key: key, hash: hash, state: "running"}, nil)
}

var ErrEnded = errEnded
