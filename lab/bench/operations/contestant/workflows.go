package contestant

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Workflows is go-workflows on its Postgres backend: a workflow of three activities.
//
// An activity is executed at least once. Its writes are not committed together with the record of
// the activity, so its statements must tolerate repetition. With one process, the backend is
// wrapped so that workers are notified of tasks at once, as in the library's own benchmark. With
// several processes, workers poll. The backend has its own pool, as large as the pool of the
// business. The task of a dead process becomes free when its lock expires, by default after two
// minutes. Heartbeats extend the lock.
func Workflows() Contestant {
	return Contestant{
		Name: "go-workflows",
		Prepare: func(ctx context.Context, dsn string) error {
			b, err := openBackend(ctx, Place{DSN: dsn}, 2)
			if err != nil {
				return err
			}
			return b.Close()
		},
		Open: openWorkflows,
	}
}

// openBackend returns a backend on the database of place. It converts panics of the library to
// errors.
func openBackend(_ context.Context, place Place, conns int) (b backend.Backend, err error) {
	config, err := pgx.ParseConfig(place.DSN)
	if err != nil {
		return nil, err
	}
	options := []backend.BackendOption{backend.WithLogger(slog.New(slog.DiscardHandler))}
	if place.Patience > 0 {
		options = append(options, backend.WithActivityLockTimeout(place.Patience), backend.WithWorkflowLockTimeout(place.Patience))
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("go-workflows: %v", p)
		}
	}()
	return postgres.NewPostgresBackend(config.Host, int(config.Port), config.User, config.Password, config.Database,
		postgres.WithApplyMigrations(place.Pool == nil), postgres.WithBackendOptions(options...),
		postgres.WithPostgresOptions(func(db *sql.DB) {
			db.SetMaxOpenConns(conns)
			db.SetMaxIdleConns(conns)
		})), nil
}

type workflowsRunner struct {
	Place
	backend backend.Backend
	worker  *worker.Worker
	client  *client.Client
	stop    func()
}

func openWorkflows(ctx context.Context, place Place) (Runner, error) {
	b, err := openBackend(ctx, place, int(place.Pool.Config().MaxConns))
	if err != nil {
		return nil, err
	}
	r := &workflowsRunner{Place: place, backend: b}
	if !place.Fleet {
		b = monoprocess.NewMonoprocessBackend(b)
	}
	options := worker.DefaultOptions
	if place.Patience > 0 {
		options.ActivityHeartbeatInterval, options.WorkflowHeartbeatInterval = place.Patience/4, place.Patience/4
	}
	r.worker, r.client = worker.New(b, &options), client.New(b)
	if err := r.worker.RegisterWorkflow(orderWorkflow); err != nil {
		return nil, err
	}
	if err := r.worker.RegisterActivity(&activities{place.Pool, r}); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	return r, r.worker.Start(working)
}

func orderWorkflow(ctx workflow.Context, order string) (string, error) {
	var a *activities
	if _, err := workflow.ExecuteActivity[any](ctx, workflow.DefaultActivityOptions, a.Reserve, order).Get(ctx); err != nil {
		return "", err
	}
	charge, err := workflow.ExecuteActivity[string](ctx, workflow.DefaultActivityOptions, a.Charge, order).Get(ctx)
	if err != nil {
		return "", err
	}
	_, err = workflow.ExecuteActivity[any](ctx, workflow.DefaultActivityOptions, a.Confirm, order, charge).Get(ctx)
	return charge, err
}

type activities struct {
	pool *pgxpool.Pool
	r    *workflowsRunner
}

func (a *activities) Reserve(ctx context.Context, order string) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, reserveAgain, order)
		return err
	})
}

func (a *activities) Charge(ctx context.Context, order string) (string, error) {
	return a.r.Bank.Charge(ctx, order, keyOf(order))
}

func (a *activities) Confirm(ctx context.Context, order, charge string) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error { return confirm(ctx, tx, order, charge) })
}

func (r *workflowsRunner) Do(ctx context.Context, order string) error {
	instance, err := r.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: order}, orderWorkflow, order)
	if err != nil || r.Fleet {
		return err
	}
	_, err = client.GetWorkflowResult[string](ctx, r.client, instance, time.Minute)
	return err
}

func (r *workflowsRunner) Close() {
	r.stop()
	_ = r.worker.WaitForCompletion()
	_ = r.backend.Close()
}
