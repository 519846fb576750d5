package contestant

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// DBOS runs a workflow of DBOS Transact. The workflow id is the key, and the only step,
// RunAsTransaction, does the business. The system database is the application's database over the
// same pool, the arrangement with the fewest commits.
//
// The result of the step is committed together with the effect. The start of the workflow and its
// outcome are separate commits. After a crash, an executor of the same version must recover the
// workflow, and duplicates wait until then. DBOS does not compare the inputs of two calls with the
// same id.
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

// order is the workflow. Its input must be serializable, so it is only the key. The call is looked
// up by the key.
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
