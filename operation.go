package idem

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// This file implements the functions that other packages of the module call through package bridge.
// Most of them serve package operation, whose calls hold a key across several transactions.

func init() {
	bridge.Register(bridge.API[Option, Result]{
		Do: doOperation, Start: startOperation, Execution: executionOf, Sealer: sealerIn,
		WithSource: withSource, Source: sourceIn,
		WithLimits: func(acquire, commit, resolve time.Duration) Option {
			return func(s *settings) {
				s.limits.txn.Acquire, s.limits.txn.Commit, s.limits.resolve = acquire, commit, resolve
			}
		},
		WithLock: func(lock func(scope, key string) *int64) Option {
			return func(s *settings) { s.lock = lock }
		},
	})
}

// withSource returns the option of idemsql.Through: the call takes its connections from source.
func withSource(source txn.Source) Option {
	return func(s *settings) {
		s.doOnly("idemsql.Through")
		if source == nil {
			s.refuse("idemsql.Through: the *sql.DB does not come from idemsql.OpenDB; open it with OpenDB")
		}
		s.source = source
	}
}

func sourceIn(opts []Option) (txn.Source, error) {
	var s settings
	err := s.set(opts)
	return s.source, err
}

func sealerIn(opts []Option) (db.Sealer, error) {
	c := &call{}
	err := c.settings.set(opts)
	return operationCall{c}.Sealer(), err
}

// operationCall gives package operation access to a call. It implements bridge.Execution.
type operationCall struct{ *call }

func (o operationCall) TTL() time.Duration   { return o.ttl }
func (o operationCall) MaxResponse() int     { return o.maxResponse }
func (o operationCall) Retries() int         { return o.retries }
func (o operationCall) ClaimedAt() time.Time { return o.execution.claimedAt }

func (o operationCall) Sealer() db.Sealer {
	if o.sealer == nil { // a nil Sealer must not become a db.Sealer that is not nil
		return nil
	}
	return o.sealer
}

// Engine returns a copy of the engine without the two settings that are only for claims: the
// timeout and the Asker.
func (o operationCall) Engine() *txn.Engine {
	engine := o.execution.engine
	engine.BeginTimeout, engine.Asker = 0, nil
	return &engine
}

func (o operationCall) Key(operationID string) db.Key {
	if operationID == "" {
		return o.execution.key
	}
	return o.execution.key.Of(operationID)
}

func (o operationCall) StepTaken(ctx context.Context, s bridge.Step) {
	observer, ok := o.observer.(StepObserver)
	if !ok {
		return
	}
	if o.trace.context != nil {
		ctx = o.trace.context
	}
	outcome := StepDone
	switch {
	case s.Unknown:
		outcome = StepUnknown
	case s.Err != nil:
		outcome = StepFailed
	}
	observer.TraceStep(ctx, TraceStepData{
		Name: s.Name, OperationID: s.Operation, Kind: s.Kind, Step: s.Step, Outcome: outcome,
		Err: s.Err, Cause: CauseOf(s.Err), Duration: s.Duration,
	})
}

func (o operationCall) Completion(key *db.Key, resp bridge.Response, state db.State) (*db.Complete, error) {
	return o.execution.completion(key, Response(resp).normal(), state)
}

// newOperationCall checks the arguments of a call that has a Runner instead of a fn, and returns
// the call.
func newOperationCall(scope, key string, hash Hash, opts []Option) (*call, error) {
	unused := func(pgx.Tx) (Response, error) { return Response{}, errors.New("idem: an operation has no fn") }
	c, err := newCall(scope, key, hash, unused, opts)
	if err == nil && c.source != nil {
		err = errors.New("idem: an operation does not take idemsql.Through; to start one in a *sql.Tx, pass idemsql.Tx to Start")
	}
	return c, err
}

func doOperation(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash [32]byte, opts []Option, runner bridge.Runner) (Result, error) {
	c, err := newOperationCall(scope, key, hash, opts)
	return c.traced(ctx, false, func() (Result, error) {
		if err != nil || pool == nil {
			return Result{}, cmp.Or(err, errors.New("idem: pool is nil"))
		}
		c.execution.work = &operation{runner: runner, call: operationCall{c}}
		return c.do(ctx, pool)
	})
}

func startOperation(ctx context.Context, tx pgx.Tx, scope, key string, hash [32]byte, opts []Option, requests func(bridge.Execution, *db.Key, time.Time) ([]txn.Request, error)) (string, error) {
	c, err := newOperationCall(scope, key, hash, opts)
	result, err := c.traced(ctx, true, func() (Result, error) {
		if err != nil || tx == nil {
			return Result{}, cmp.Or(err, errors.New("idem: tx is nil"))
		}
		if c.forDoOnly != "" {
			return Result{}, errors.New("idem: " + c.forDoOnly + " has no meaning for Start: the transaction is the caller's")
		}
		c.waiting.wait = 0
		return c.join(ctx, tx, start(func(claimedAt time.Time) ([]txn.Request, error) {
			return requests(operationCall{c}, &c.execution.key, claimedAt)
		}))
	})
	return result.ExecutionID, err
}

func executionOf(pool *pgxpool.Pool, scope, key string, hash [32]byte, ttl time.Duration, opts []Option) (bridge.Execution, error) {
	c, err := newOperationCall(scope, key, hash, opts)
	if err != nil {
		return nil, err
	}
	c.ttl = ttl
	c.execution.key = db.NewKey(scope, key, hash, "", ttl)
	c.setEngine(pool)
	return operationCall{c}, nil
}

// operation is the work of a call by Do of package operation: a Runner that executes the steps of
// an operation takes the place of fn.
type operation struct {
	runner   bridge.Runner
	call     bridge.Execution
	awaited  string    // the id of the operation that the call waits for
	resumeAt time.Time // when the call may try again to resume the awaited operation
}

// resumePause is the pause between two attempts to resume an operation that is waiting or is in
// progress in another process.
const resumePause = time.Second

func (*operation) statements(bool) []*roundtrip.Statement { return preparedOperation }

// afterClaim returns a savepoint, so that rolling back the first step does not roll back the claim.
func (*operation) afterClaim() []txn.Request { return []txn.Request{db.Savepoint{}} }

// begin passes the transaction of the claim to the Runner, which executes the operation.
func (o *operation) begin(ctx context.Context, x *execution) (ending, error) {
	x.askedAt = time.Now()
	end := o.runner.Begin(ctx, o.call, x.tx)
	if end.Outcome == bridge.InProgress {
		o.awaited = x.key.ExecutionID
	}
	if end.Outcome != bridge.Uncommitted {
		return x.afterRunner(end)
	}
	if end.Err == nil {
		return x.complete(ctx, Response(end.Response), db.Completed)
	}
	var rejected *rejection
	undo := errors.As(end.Err, &rejected) && !errors.Is(end.Err, ErrTxEnded) && !errors.Is(end.Err, ErrTxAborted)
	return x.rollback(rejected, undo, end.Err)
}

// resume lets the Runner continue the operation, at most once every resumePause.
func (o *operation) resume(ctx context.Context, x *execution) (ending, error) {
	if time.Now().Before(o.resumeAt) {
		return inProgress, nil
	}
	x.askedAt = time.Now()
	end, err := x.afterRunner(o.runner.Resume(ctx, o.call, x.record.ExecutionID))
	o.resumeAt = time.Now().Add(resumePause)
	return end, err
}

// endedMeanwhile asks the Runner how the awaited operation has ended, if the key is now free or
// belongs to another operation. It also stores in o.awaited which operation the call waits for from
// now on.
func (o *operation) endedMeanwhile(ctx context.Context, x *execution, found finding) (error, bool) {
	if found == held {
		return nil, false
	}
	before := o.awaited
	current := ""
	if found != claimed {
		current = x.record.ExecutionID
	}
	if found == running {
		o.awaited = current
	} else if before != current {
		o.awaited = ""
	}
	if before == "" || before == current {
		return nil, false
	}
	ask := o.call.Engine().Query
	if found == claimed {
		ask = x.tx.Ask
	}
	end, ended := o.runner.Ended(ctx, o.call, before, ask)
	if ended && found == claimed {
		x.tx.Close()
	}
	return end.Err, ended
}

func (*operation) isOperation() bool { return true }
