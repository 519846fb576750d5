package idem

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// What package operation alone gets of this one: calls that hold their key across several transactions.

func init() {
	longcall.Leave(longcall.Door[Option, Result]{
		Do: doHeld, Start: startHeld, Settings: settingsHeld, Sealer: sealerHeld,
		From: fromSource, Source: sourceHeld,
	})
}

// fromSource is the option that package idemsql makes of a *sql.DB.
func fromSource(source txn.Source) Option {
	return func(s *settings) {
		s.doOnly("idemsql.Through")
		if source == nil {
			s.refuse("idemsql.Through: the *sql.DB is none of idemsql.OpenDB")
		}
		s.source = source
	}
}

func sourceHeld(opts []Option) (txn.Source, error) {
	var s settings
	err := s.set(opts)
	return s.source, err
}

// heldCall is a call as package operation sees it.
type heldCall struct{ *call }

func (h heldCall) TTL() time.Duration   { return h.ttl }
func (h heldCall) MaxResponse() int     { return h.maxResponse }
func (h heldCall) Retries() int         { return h.retries }
func (h heldCall) ClaimedAt() time.Time { return h.execution.claimedAt }

// Sealer returns what seals inputs and values, nil if nothing does.
func (h heldCall) Sealer() db.Sealer {
	if h.sealer == nil {
		return nil
	}
	return h.sealer
}

// Engine returns an engine without the patience and the flight of a claim.
func (h heldCall) Engine() *txn.Engine {
	engine := h.execution.engine
	engine.Patience, engine.Asker = 0, nil
	return &engine
}

func (h heldCall) Key(executionID string) db.Key {
	if executionID == "" {
		return h.execution.key
	}
	return h.execution.key.Of(executionID)
}

// StepTaken tells the observer of a step.
func (h heldCall) StepTaken(ctx context.Context, s longcall.Step) {
	observer, ok := h.observer.(StepObserver)
	if !ok {
		return
	}
	if h.trace.context != nil {
		ctx = h.trace.context
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

func (h heldCall) Completion(key *db.Key, resp longcall.Response, state db.State) (*db.Complete, error) {
	return h.execution.completionOf(key, Response(resp).normal(), state)
}

// traced runs the call under the eyes of its observer.
func (c *call) traced(ctx context.Context, scope, key string, joined bool, run func() (Result, error)) (result Result, err error) {
	c.trace.start(ctx, c.name, scope, key, joined)
	ended := false
	defer func() { c.trace.end(ended, result, err) }()
	result, err = run()
	ended = true
	return result, err
}

// newHeld checks the arguments of a call that a Runner executes, or that has its key already.
func newHeld(scope, key string, hash Hash, opts []Option) (*call, error) {
	never := func(pgx.Tx) (Response, error) { return Response{}, errors.New("idem: an operation has no fn") }
	c, err := newCall(scope, key, hash, never, opts)
	if err == nil && c.source != nil {
		err = errors.New("idem: idemsql.Through has no meaning for an operation: idemsql.Tx makes a *sql.Tx fit for Start")
	}
	return c, err
}

func doHeld(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash [32]byte, opts []Option, runner longcall.Runner) (Result, error) {
	c, err := newHeld(scope, key, hash, opts)
	return c.traced(ctx, scope, key, false, func() (Result, error) {
		if err != nil || pool == nil {
			return Result{}, cmp.Or(err, errors.New("idem: pool is nil"))
		}
		c.execution.work = &operation{runner: runner, seen: heldCall{c}}
		return c.do(ctx, pool)
	})
}

func startHeld(ctx context.Context, tx pgx.Tx, scope, key string, hash [32]byte, opts []Option, requests func(longcall.Execution, *db.Key, time.Time) ([]txn.Request, error)) (string, error) {
	c, err := newHeld(scope, key, hash, opts)
	result, err := c.traced(ctx, scope, key, true, func() (Result, error) {
		if err != nil || tx == nil {
			return Result{}, cmp.Or(err, errors.New("idem: tx is nil"))
		}
		if c.forDoOnly != "" {
			return Result{}, errors.New("idem: " + c.forDoOnly + " has no meaning for Start: the transaction is the caller's")
		}
		c.waiting.wait = 0
		return c.join(ctx, tx, start(func(claimedAt time.Time) ([]txn.Request, error) {
			return requests(heldCall{c}, &c.execution.key, claimedAt)
		}))
	})
	return result.ExecutionID, err
}

func settingsHeld(pool *pgxpool.Pool, scope, key string, hash [32]byte, ttl time.Duration, opts []Option) (longcall.Execution, error) {
	c, err := newHeld(scope, key, hash, opts)
	if err != nil {
		return nil, err
	}
	c.ttl = ttl
	c.execution.key = db.NewKey(scope, key, hash, "", ttl)
	c.begin(pool)
	return heldCall{c}, nil
}

func sealerHeld(opts []Option) (db.Sealer, error) {
	c := &call{}
	err := c.settings.set(opts)
	return heldCall{c}.Sealer(), err
}

// operation is the work of several transactions of package operation.
type operation struct {
	runner  longcall.Runner
	seen    longcall.Execution // what the runner sees of the call
	met     string             // the operation that the call waits for
	triedAt time.Time          // when the runner was last asked to go on with an operation
}

// resumePause is the pause between two attempts to go on with an operation that waits, or that another process works on.
const resumePause = time.Second

func (*operation) prepared(bool) []*roundtrip.Statement { return preparedHeld }

// behindClaim is a savepoint for the first step: no step may undo the claim.
func (*operation) behindClaim() []txn.Request { return []txn.Request{db.Savepoint{}} }

// begin gives the transaction of the claim to the Runner.
func (o *operation) begin(ctx context.Context, x *execution) (ending, error) {
	x.askedAt = time.Now()
	end := o.runner.Begin(ctx, o.seen, x.tx)
	if end.Outcome == longcall.Elsewhere {
		o.met = x.key.ExecutionID
	}
	if end.Outcome != longcall.Unheld {
		return x.after(end)
	}
	if end.Err == nil {
		return x.complete(ctx, Response(end.Response), db.Completed)
	}
	var rejected *rejection
	undo := errors.As(end.Err, &rejected) && !errors.Is(end.Err, ErrTxEnded) && !errors.Is(end.Err, ErrTxAborted)
	return x.rollback(rejected, undo, end.Err)
}

func (o *operation) resume(ctx context.Context, x *execution) (ending, error) {
	if time.Since(o.triedAt) <= resumePause {
		return elsewhere, nil
	}
	x.askedAt = time.Now()
	end, err := x.after(o.runner.Resume(ctx, o.seen, x.record.ExecutionID))
	o.triedAt = time.Now()
	return end, err
}

// waited asks how the operation has ended that this call has waited for, once the key is free or another's.
func (o *operation) waited(ctx context.Context, x *execution, found finding) (error, bool) {
	switch {
	case found == held:
		return nil, false
	case found != claimed && (o.met == "" || o.met == x.record.ExecutionID):
		if found == running {
			o.met = x.record.ExecutionID
		}
		return nil, false
	case o.met == "":
		return nil, false
	}
	ask := o.seen.Engine().Query
	if found == claimed {
		ask = x.tx.Ask
	}
	end, ended := o.runner.Ended(ctx, o.seen, o.met, ask)
	if ended && found == claimed {
		x.tx.Close()
	}
	if o.met = ""; found == running {
		o.met = x.record.ExecutionID
	}
	return end.Err, ended
}

func (*operation) outlasts() bool { return true }
