package contestant

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
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
var DBOS = Contestant{
	Name: "DBOS Transact", Listens: true, Tables: []string{"dbos.workflow_status", "dbos.operation_outputs"}, Open: openDBOS,
}

func openDBOS(ctx context.Context, place Place) (Do, error) {
	instance, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: place.Pool, ApplicationVersion: "1", ExecutorID: "bench", Logger: slog.New(slog.DiscardHandler),
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
	place.Cleanup(func() { _ = dbos.Shutdown(instance, 10*time.Second) })
	return r.do, dbos.Launch(instance)
}

type dbosRunner struct {
	instance dbos.Context
	source   *dbos.DataSource
	pending  sync.Map // *dbosCall by key
}

// dbosCall is a call whose workflow may run.
type dbosCall struct {
	Call
	executed atomic.Bool
}

// order is the workflow. Its input must be serializable, so it is only the key. The call is looked
// up by the key.
func (r *dbosRunner) order(ctx dbos.Context, key string) (string, error) {
	pending, _ := r.pending.Load(key)
	call := pending.(*dbosCall)
	call.executed.Store(true)
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

// do stores the call for the workflow. The first caller whose workflow was executed removes it.
func (r *dbosRunner) do(_ context.Context, call Call) (Answer, error) {
	pending, _ := r.pending.LoadOrStore(call.Key, &dbosCall{Call: call})
	handle, err := dbos.RunWorkflow(r.instance, r.order, call.Key, dbos.WithWorkflowID(call.Key))
	if err != nil {
		return Answer{}, err
	}
	body, err := handle.GetResult()
	executed := pending.(*dbosCall).executed.CompareAndSwap(true, false)
	if executed {
		r.pending.Delete(call.Key)
	}
	return Answer{Body: []byte(body), Replayed: !executed}, err
}
