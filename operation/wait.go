package operation

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Wait waits until the operation has ended, and returns its answer, which Do of its key would return too. It does not work on
// the operation: that is for a Worker, or for callers of Do. Wait asks the database again after a pause that grows to a second, and holds no
// connection between two looks. Of the options, idem.WithSealer matters.
//
// The error is that of ctx if ctx ends first; ErrParked, at once, if the operation is parked; ErrUndone if it has ended without an answer,
// cancelled or in an error that is Final; ErrAnswerGone if the answer has expired, or the key was used again; ErrUnknownOperation
// if there is no operation of that id.
func Wait(ctx context.Context, pool *pgxpool.Pool, id string, opts ...idem.Option) (idem.Result, error) {
	id, err := parsedID(id)
	switch {
	case err != nil:
		return idem.Result{}, err
	case pool == nil:
		return idem.Result{}, errors.New("operation: pool is nil")
	}
	if err := idem.CheckOptions(opts...); err != nil {
		return idem.Result{}, err
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	pause := txn.Pauses{Current: 10 * time.Millisecond, Limit: time.Second}
	for {
		found := store.FindOperation{OperationID: id}
		if err := engine.Query(ctx, &found); err != nil {
			return idem.Result{}, err
		}
		if found.Found && found.State == store.OperationRunning {
			if err := txn.Sleep(ctx, pause.Next()); err != nil {
				return idem.Result{}, context.Cause(ctx)
			}
			continue
		}
		return answerOf(ctx, pool, &found, opts)
	}
}

// answerOf returns the answer of an operation that does not run.
func answerOf(ctx context.Context, pool *pgxpool.Pool, found *store.FindOperation, opts []idem.Option) (idem.Result, error) {
	switch {
	case !found.Found:
		return idem.Result{}, ErrUnknownOperation
	case found.State == store.OperationParked:
		return idem.Result{}, &ParkedError{OperationID: found.OperationID, Step: found.Step, Reason: found.Reason, Since: found.Since}
	case found.State == store.OperationUndone:
		return idem.Result{}, ErrUndone
	}
	result, err := door.Do(ctx, pool, found.Scope, found.Key, found.Hash, opts, onlyReplay{})
	switch {
	case errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrInProgress), err == nil && result.ExecutionID != found.OperationID:
		return idem.Result{}, ErrAnswerGone
	case err != nil:
		return idem.Result{}, err
	}
	return result, nil
}

// onlyReplay is the Runner of a call that is to replay an answer, and to do nothing if there is none.
type onlyReplay struct{}

func (onlyReplay) Begin(context.Context, longcall.Execution, *txn.Tx) longcall.Ending {
	return longcall.Ending{Outcome: longcall.Unheld, Err: ErrAnswerGone}
}

func (onlyReplay) Resume(context.Context, longcall.Execution, string) longcall.Ending {
	return longcall.Ending{Outcome: longcall.Failed, Err: ErrAnswerGone}
}
