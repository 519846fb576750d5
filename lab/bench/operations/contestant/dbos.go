package contestant

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DBOS is a workflow of DBOS Transact: two RunAsTransaction steps with a RunAsStep between them.
// DBOS keeps its system tables in the application's database and uses the same pool. This
// arrangement needs the fewest commits. Without the service DBOS Conductor, nothing detects a dead
// process. A process recovers its own workflows when it is restarted with the same executor id.
var DBOS = Contestant{
	Name: "DBOS Transact", Restarts: true,
	Prepare: func(ctx context.Context, dsn string) error {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		instance, err := newInstance(ctx, Place{Pool: pool})
		if err != nil {
			return err
		}
		return dbos.Shutdown(instance, shutdownLimit)
	},
	Open: openDBOS,
}

const shutdownLimit = 10 * time.Second

func newInstance(ctx context.Context, place Place) (dbos.Context, error) {
	return dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
		AppName: "bench", SystemDBPool: place.Pool, ApplicationVersion: "1", ExecutorID: fmt.Sprint("executor-", place.Worker),
		Logger: slog.New(slog.DiscardHandler),
	})
}

func openDBOS(ctx context.Context, place Place) (Do, error) {
	instance, err := newInstance(ctx, place)
	if err != nil {
		return nil, err
	}
	source, err := dbos.NewDataSource(instance, place.Pool)
	if err != nil {
		return nil, err
	}
	r := &dbosRunner{Place: place, instance: instance, source: source}
	dbos.RegisterWorkflow(instance, r.order, dbos.WithWorkflowName("order"))
	place.Cleanup(func() { _ = dbos.Shutdown(instance, shutdownLimit) })
	return r.do, dbos.Launch(instance)
}

type dbosRunner struct {
	Place
	instance dbos.Context
	source   *dbos.DataSource
}

func (r *dbosRunner) order(ctx dbos.Context, order string) (string, error) {
	_, err := dbos.RunAsTransaction(ctx, r.source, func(ctx context.Context, tx dbos.Tx) (string, error) {
		_, err := tx.Exec(ctx, reserveOrder, order)
		return order, err
	}, dbos.WithStepName("reserve"))
	if err != nil {
		return "", err
	}
	charge, err := dbos.RunAsStep(ctx, func(ctx context.Context) (string, error) {
		return r.Bank.Charge(ctx, order, keyOf(order))
	}, dbos.WithStepName("charge"), dbos.WithStepMaxRetries(10))
	if err != nil {
		return "", err
	}
	return dbos.RunAsTransaction(ctx, r.source, func(ctx context.Context, tx dbos.Tx) (string, error) {
		_, err := tx.Exec(ctx, confirmOrder, order, charge)
		return charge, err
	}, dbos.WithStepName("confirm"))
}

func (r *dbosRunner) do(_ context.Context, order string) error {
	handle, err := dbos.RunWorkflow(r.instance, r.order, order, dbos.WithWorkflowID(order))
	if err != nil {
		return err
	}
	_, err = handle.GetResult()
	return err
}
