package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// begin has the work done in the transaction of the claim, or records the rejection that it has come to before.
func (x *execution) begin(ctx context.Context) (ending, error) {
	defer x.tx.Close() // also if the work panics
	if x.rejection != nil {
		return x.complete(ctx, *x.rejection, store.Failed)
	}
	x.trace.attempts++
	x.trace.event(EventExecuting, nil)
	return x.work.begin(ctx, x)
}

// run runs fn in the transaction of the claim, and commits its writes together with its response.
func (x *execution) run(ctx context.Context, fn func(pgx.Tx) (Response, error)) (ending, error) {
	var resp Response
	var rejected *rejection
	undo, err := x.tx.Run(x.key.ExecutionID, func(tx pgx.Tx) (bool, error) {
		var err error
		resp, err = fn(tx)
		if errors.As(err, &rejected) && !errors.Is(err, ErrTxEnded) && !errors.Is(err, ErrTxAborted) {
			return true, nil
		}
		return false, err
	})
	if err == nil && !undo {
		return x.complete(ctx, resp, store.Completed)
	}
	return x.rollback(rejected, undo, err)
}

// after turns what a Runner came to into the ending of the call.
func (x *execution) after(end longcall.Ending) (ending, error) {
	switch end.Outcome {
	case longcall.Undone:
		return undone, end.Err
	case longcall.Unknown: // the process that may have gone on from there has given the response
		x.sent = nil
		return unknown, end.Err
	case longcall.Recorded:
		x.record = *end.Record
		x.key = x.key.Of(end.Record.ExecutionID)
		return recorded, nil
	case longcall.Elsewhere:
		return elsewhere, nil
	case longcall.Ended:
		return holding, nil
	case longcall.Freed:
		x.key = x.key.Of(newExecutionID()) // a new execution is not the one that was undone
		return holding, nil
	case longcall.Failed:
		return failed, end.Err
	}
	return failed, fmt.Errorf("idem: outcome %d of an operation", end.Outcome)
}

// rollback ends the transaction of a fn that returned an error, or a rejection.
func (x *execution) rollback(rejected *rejection, undo bool, err error) (ending, error) {
	holds, after := store.StillClaimed{Key: &x.key}, store.Load{Key: &x.key}
	isHeld := x.tx.Held(
		txn.Question{Request: &holds, Answer: func() bool { return holds.Held }},
		txn.Question{Request: &after, Answer: func() bool { return !after.Ours() }}, // a record of ours that a rollback does not undo was committed by fn
	)
	switch {
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrTxAborted):
		return failed, err
	case !isHeld:
		return failed, txn.Ended("a statement of fn did, and began another", err)
	case undo:
		if _, err := rejected.response.normal().check(x.maxResponse); err != nil {
			return failed, err
		}
		x.rejection = &rejected.response
		return rejecting, nil
	case txn.Rerunnable(err):
		return undone, err
	}
	return failed, err
}

// complete records the response and commits, in one round trip. From here on the end of the caller's context does not
// undo anything.
func (x *execution) complete(ctx context.Context, resp Response, state store.State) (ending, error) {
	resp = resp.normal()
	c, err := x.completion(resp, state)
	if err != nil {
		return failed, err
	}
	x.sent = &resp
	x.trace.event(EventRecording, nil)
	x.askedAt = time.Now()
	err = x.tx.Commit(ctx, c)
	switch {
	case err == nil && !c.Recorded:
		return failed, txn.Ended("everything is committed, but the record was not completed: is there a trigger on idem.records?", nil)
	case err == nil:
		x.record = completedRecord(c, resp, x.claimedAt)
		return recorded, nil
	}
	var lost *txn.UnknownError
	switch {
	case errors.As(err, &lost):
		return unknown, lost.Err
	case txn.Stale(err):
		x.tx.CloseAfter(err)
		return undone, err
	case txn.Rerunnable(err):
		return undone, err
	case c.Recorded: // what COMMIT itself answers is passed on as it is
		return failed, err
	}
	return failed, completeError(err)
}

// completion returns the request that records a response.
func (x *execution) completion(resp Response, state store.State) (*store.Complete, error) {
	return x.completionOf(&x.key, resp, state)
}

// completionOf returns the request that records a response under a key that is not the claim's own.
func (x *execution) completionOf(key *store.Key, resp Response, state store.State) (*store.Complete, error) {
	header, err := resp.check(x.maxResponse)
	if err != nil {
		return nil, err
	}
	c := &store.Complete{Key: key, State: state, Status: resp.Status, Header: header, Body: resp.Body}
	if x.sealer != nil {
		if err := c.Seal(x.sealer); err != nil {
			return nil, fmt.Errorf("idem: the response could not be sealed, nothing is committed: %w", err)
		}
	}
	return c, nil
}

// tooSlow is the error of a fn that has let its transaction be for longer than the server allows. To run it again would be
// to wait for the same once more.
func tooSlow(cause error) error {
	return fmt.Errorf("%w: the server ended the session, because fn left its transaction idle or open for longer than "+
		"idle_in_transaction_session_timeout or transaction_timeout allows: %w", ErrTxAborted, cause)
}

func completedRecord(c *store.Complete, resp Response, claimedAt time.Time) store.Record {
	return store.Record{
		SameHash: true, ExecutionID: c.Key.ExecutionID, State: c.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: claimedAt, CompletedAt: c.CompletedAt, ExpiresAt: c.ExpiresAt,
	}
}

// completeError names what fn has done that keeps its record from being completed.
func completeError(err error) error {
	switch {
	case txn.HasCode(err, store.Gone):
		return txn.Ended("the claimed record is gone, or the transaction is another one", nil)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("idem: the role of the transaction may not write idem.records; if fn has changed it (SET LOCAL ROLE), it has to change it back (RESET ROLE) before it returns: %w", err)
	}
	return hint(err)
}

// resolve asks the record the outcome of a COMMIT that was not acknowledged because of cause. It makes the same claim again.
// A record with our execution id says that it was committed. A claim that succeeds says that it was not and never will be,
// because the transaction that held the key is over. A key that is held says that it is still under way.
//
// It goes on, within limit, after the end of the caller's context: the caller is better served by the truth than by speed.
func (x *execution) resolve(ctx context.Context, limit, ttl time.Duration, cause error) (ending, error) {
	x.trace.event(EventOutcomeUnknown, cause)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	expiry := x.claimedAt.Add(ttl) // of the record that may have been committed, at the earliest
	for pause := pollPause; ; {
		found, err := x.claim(bounded)
		switch {
		case err != nil && !txn.Transient(err) && bounded.Err() == nil:
			return failed, x.unknownBecause(errors.Join(cause, err))
		case err != nil, found == held: // Postgres cannot be asked, or the COMMIT is still under way
		case found == answered && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			x.recall()
			return recorded, nil
		case found == running && x.loading.Ours():
			x.trace.event(EventResolvedCommitted, nil)
			return holding, nil
		default:
			return x.notOurs(found, expiry, cause)
		}
		if txn.Sleep(bounded, pause.Next()) != nil {
			return failed, x.unknownBecause(cause)
		}
	}
}

// recall makes the response of our own record the one that is at hand: whatever happens to what was stored, this caller is
// told what was committed. A record without a response stays as it is, and so does one of an operation that others have completed.
func (x *execution) recall() {
	if r := &x.record; r.State != store.Processing && x.sent != nil {
		r.Header, r.Body, r.Closed = x.sent.Header, x.sent.Body, false
	}
}

// notOurs tells what follows from a key that is free, or has the record of another execution. If our own may have come and
// gone before that, nothing tells any more the outcome of it.
func (x *execution) notOurs(found finding, expiry time.Time, cause error) (ending, error) {
	seen := x.record.CompletedAt
	if found == claimed {
		x.tx.Close()
		seen = x.claimedAt
	} else if seen.IsZero() {
		seen = x.record.LoadedAt
	}
	if !seen.Before(expiry) {
		return failed, x.unknownBecause(cause)
	}
	x.trace.event(EventResolvedRolledBack, nil)
	switch {
	case found == answered:
		return recorded, nil
	case txn.TooSlow(cause):
		return failed, tooSlow(cause)
	}
	return undone, cause
}

func (x *execution) unknownBecause(cause error) error {
	return &OutcomeUnknownError{ExecutionID: x.key.ExecutionID, Err: cause}
}

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
