package idem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/hold"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// function is the fn of a Do or a DoTx.
type function func(pgx.Tx) (Response, error)

func (function) prepared(atOnce bool) []*roundtrip.Statement {
	if atOnce {
		return preparedAtOnce
	}
	return prepared
}

func (function) behindClaim() []txn.Request { return nil }

func (fn function) begin(ctx context.Context, x *execution) (ending, error) { return x.run(ctx, fn) }

func (function) resume(context.Context, *execution) (ending, error) { return elsewhere, nil }

func (function) outlasts() bool { return false }

// operation is the work of several transactions of package operation.
type operation struct {
	runner  hold.Runner
	seen    hold.Execution // what the runner sees of the call
	triedAt time.Time      // when the runner was last asked to go on with an operation
}

// resumePause is the pause between two attempts to go on with an operation that waits, or that another process works on.
const resumePause = time.Second

func (*operation) prepared(bool) []*roundtrip.Statement { return preparedHeld }

// behindClaim is a savepoint for the first step: no step may undo the claim.
func (*operation) behindClaim() []txn.Request { return []txn.Request{store.Savepoint{}} }

// begin gives the transaction of the claim to the Runner.
func (o *operation) begin(ctx context.Context, x *execution) (ending, error) {
	x.askedAt = time.Now()
	end := o.runner.Begin(ctx, o.seen, x.tx)
	if end.Outcome != hold.Unheld {
		return x.after(end)
	}
	if end.Err == nil {
		return x.complete(ctx, Response(end.Response), store.Completed)
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

func (*operation) outlasts() bool { return true }
