package contestant

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// DBOS runs a workflow of DBOS Transact. The workflow id is the key. The only step,
// RunAsTransaction, executes the statements of the business. DBOS keeps its system tables in the
// application's database and uses the same pool. This arrangement needs the fewest commits.
//
// The result of the step is committed together with the effect. The start of the workflow and its
// outcome are separate commits. After a crash, an executor of the same application version must
// recover the workflow, and duplicates wait until then. DBOS does not compare the inputs of two
// calls with the same id.
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
	pending  sync.Map // calls in progress (*dbosCall) by key
}

// dbosCall is a call whose workflow may be in progress.
type dbosCall struct {
	Call
	executed atomic.Bool
}

// order is the workflow. The input of a workflow must be serializable, so the input is only the
// key, and order looks up the call by the key.
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

// do stores the call, so that the workflow can look it up, and starts the workflow. The first
// caller that gets the result of an executed workflow removes the call.
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
