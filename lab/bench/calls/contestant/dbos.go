package contestant

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// DBOS is a workflow of DBOS Transact whose id is the key and whose only step, RunAsTransaction,
// does the business. The system database is the application's own, over the same pool, which is the
// arrangement with the fewest commits. The step's result is committed together with the effect; the
// start of the workflow and its outcome are commits of their own. A workflow whose process has died
// goes on when an executor of the same version recovers it, and duplicates wait until then. The
// input of a second call with the same id is not compared.
func DBOS() Contestant {
	return Contestant{
		Name: NameDBOS, Listens: true,
		Tables: []string{"dbos.workflow_status", "dbos.operation_outputs"},
		Open:   openDBOS,
	}
}

func openDBOS(ctx context.Context, place Place) (Runner, error) {
	instance, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: place.Pool, ApplicationVersion: "1", ExecutorID: "bench",
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	source, err := dbos.NewDataSource(instance, place.Pool)
	if err != nil {
		return nil, err
	}
	r := &dbosRunner{instance: instance, source: source}
	dbos.RegisterWorkflow(instance, r.order, dbos.WithWorkflowName("order"))
	return r, dbos.Launch(instance)
}

type dbosRunner struct {
	instance dbos.Context
	source   *dbos.DataSource
	calls    calls
}

// order is the workflow. What its input cannot carry, because it has to be serialised, is looked up
// by the key.
func (r *dbosRunner) order(ctx dbos.Context, key string) (string, error) {
	call := r.calls.of(key)
	return dbos.RunAsTransaction(ctx, r.source, func(ctx context.Context, tx dbos.Tx) (string, error) {
		for _, s := range call.Business(call.Key) {
			if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
				return "", err
			}
		}
		call.hold()
		return string(call.Body), nil
	})
}

func (r *dbosRunner) Do(_ context.Context, call Call) (Answer, error) {
	executed := r.calls.put(call)
	defer r.calls.drop(call.Key)
	handle, err := dbos.RunWorkflow(r.instance, r.order, call.Key, dbos.WithWorkflowID(call.Key))
	if err != nil {
		return Answer{}, err
	}
	body, err := handle.GetResult()
	return Answer{Body: []byte(body), Replayed: !executed()}, err
}

func (r *dbosRunner) Close() { _ = dbos.Shutdown(r.instance, 10*time.Second) }
