package idem

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// joined is one DoTx: a claim, fn's writes and a response inside a transaction of the caller's.
type joined struct {
	execution
	does   joinedWork
	inVain func() error
	part   *txn.Joined
}

// joinedWork is what a call does with its key in a transaction of the caller's: the fn of DoTx, or the Start of an operation.
type joinedWork interface {
	// execute works behind the claim.
	execute(ctx context.Context, j *joined) (store.Record, error)
	// meet answers where an operation has the key.
	meet(j *joined) (store.Record, error)
}

func (fn function) execute(ctx context.Context, j *joined) (store.Record, error) {
	return j.execute(ctx, fn)
}

func (function) meet(j *joined) (store.Record, error) { return store.Record{}, j.inVain() }

// start makes the claimed key an operation's, from the commit of the caller's transaction on.
type start func(claimedAt time.Time) ([]txn.Request, error)

func (s start) execute(ctx context.Context, j *joined) (store.Record, error) { return j.hold(ctx, s) }

func (start) meet(j *joined) (store.Record, error) {
	j.record.Closed = false // it has no response yet
	return j.record, nil
}

// join does the work of the call inside tx.
func (c *call) join(ctx context.Context, tx pgx.Tx, work joinedWork) (result Result, err error) {
	part, err := txn.Join(ctx, tx, c.limits.txn)
	if err != nil {
		return Result{}, err
	}
	defer part.Leave()
	j := &joined{execution: c.execution, does: work, inVain: c.waiting.inProgress, part: part}
	returned := false
	defer func() {
		if !returned { // fn has panicked
			_ = part.Undo(nil)
		}
	}()
	r, err := j.run(ctx)
	returned = true
	if err != nil {
		return Result{}, err
	}
	result, err = answerFrom(&r, c.key, &c.execution.key, c.sealer)
	if err == nil && result.Replayed {
		c.trace.age = r.LoadedAt.Sub(r.CreatedAt)
	}
	return result, err
}

// run claims the key, and executes or finds the record.
func (j *joined) run(ctx context.Context) (store.Record, error) {
	found, err := j.claim(ctx)
	switch {
	case err != nil:
		return store.Record{}, j.part.Undo(hint(err))
	case found == running:
		return j.does.meet(j)
	case found == held:
		return store.Record{}, j.inVain()
	case found == answered && j.record.State == store.Processing && j.record.SameHash:
		return store.Record{}, j.inVain() // as a rule, that of a DoTx or Do further up in the same transaction
	case found == answered:
		return j.record, nil
	}
	r, err := j.does.execute(ctx, j)
	if err != nil {
		return store.Record{}, j.part.Undo(err)
	}
	return r, nil
}

// claim claims the key under a savepoint. If it does not get it, what it did is undone.
func (j *joined) claim(ctx context.Context) (finding, error) {
	j.claiming = store.Claim{Key: &j.key, AtOnce: true}
	j.loading = store.Load{Key: &j.key}
	if err := j.part.Prepare(ctx, store.StatementsAtOnce); err != nil {
		return held, err // of a table that is locked, not of a key that is held
	}
	err := j.part.Begin(ctx, store.StatementsAtOnce, &j.claiming, &j.loading)
	return j.found(ctx, err)
}

// found tells what a claim that was answered with err has found, and undoes it if that is not the key.
func (j *joined) found(ctx context.Context, err error) (finding, error) {
	found := held
	if err == nil {
		found, err = j.find(ctx, j.part.Ask)
	}
	switch {
	case txn.LockTimedOut(err) && j.part.Saves():
		return held, j.part.Undo(nil)
	case txn.LockTimedOut(err): // the server has aborted the transaction
		return held, nil
	case err != nil || found == claimed:
		return found, err
	case j.part.Saves():
		return found, j.part.Undo(nil) // its lock, and what it has set
	}
	return found, j.part.Ask(ctx, store.Calm{})
}

// execute runs fn and records its response.
func (j *joined) execute(ctx context.Context, fn func(pgx.Tx) (Response, error)) (store.Record, error) {
	j.trace.attempts++
	j.trace.event(EventExecuting, nil)
	var resp Response
	var rejected *rejection
	undo, err := j.part.Run(j.key.ExecutionID, func(tx pgx.Tx) (bool, error) {
		var err error
		resp, err = fn(tx)
		if errors.As(err, &rejected) && !errors.Is(err, ErrTxEnded) {
			return true, nil
		}
		return false, err
	})
	switch {
	case err != nil:
		return store.Record{}, err
	case undo:
		return j.reject(ctx, rejected.response)
	}
	return j.complete(ctx, resp, store.Completed)
}

// hold makes the key an operation's, from the commit of the caller's transaction on.
func (j *joined) hold(ctx context.Context, start start) (store.Record, error) {
	requests, err := start(j.claimedAt)
	if err != nil {
		return store.Record{}, err
	}
	if j.previous != "" {
		requests = append(requests, store.Reclaim{ExecutionID: j.previous})
	}
	if err := j.part.Complete(ctx, requests...); err != nil {
		return store.Record{}, completeError(err)
	}
	return store.Record{SameHash: true, ExecutionID: j.key.ExecutionID, State: store.Running, CreatedAt: j.claimedAt}, nil
}

// reject undoes what fn did, and records the answer under a claim of its own.
func (j *joined) reject(ctx context.Context, resp Response) (store.Record, error) {
	if _, err := resp.normal().check(j.maxResponse); err != nil {
		return store.Record{}, err
	}
	j.claiming = store.Claim{Key: &j.key, AtOnce: true}
	j.loading = store.Load{Key: &j.key}
	err := j.part.Restart(ctx, &j.claiming, &j.loading)
	if err != nil && !txn.LockTimedOut(err) {
		return store.Record{}, err
	}
	found, err := j.found(ctx, err)
	switch {
	case err != nil:
		return store.Record{}, err
	case found == held, found == running:
		return store.Record{}, j.inVain()
	case found == answered:
		return j.record, nil
	}
	return j.complete(ctx, resp, store.Failed)
}

// complete records the response. It becomes valid with the caller's transaction.
func (j *joined) complete(ctx context.Context, resp Response, state store.State) (store.Record, error) {
	resp = resp.normal()
	c, err := j.completion(resp, state)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return store.Record{}, err
	}
	j.trace.event(EventRecording, nil)
	requests := []txn.Request{c}
	if j.previous != "" {
		requests = append(requests, store.Reclaim{ExecutionID: j.previous})
	}
	if err := j.part.Complete(ctx, requests...); err != nil {
		return store.Record{}, completeError(err)
	}
	if !c.Recorded {
		return store.Record{}, txn.Ended("the record was not completed: is there a trigger on idem.records?", nil)
	}
	return completedRecord(c, resp, j.claimedAt), nil
}
