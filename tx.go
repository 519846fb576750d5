package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// begin runs the work in the transaction that has claimed the key. If an earlier run has rejected,
// begin only records its rejection.
func (x *execution) begin(ctx context.Context) (ending, error) {
	defer x.tx.Close() // also if the work panics
	if x.rejection != nil {
		return x.complete(ctx, *x.rejection, db.Failed)
	}
	x.trace.attempts++
	x.trace.event(EventExecuting, nil)
	return x.work.begin(ctx, x)
}

// run runs fn in the transaction of the claim, and commits the writes of fn with its response.
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
		return x.complete(ctx, resp, db.Completed)
	}
	return x.rollback(rejected, undo, err)
}

// afterRunner translates the ending of a Runner into the ending of the call.
func (x *execution) afterRunner(end bridge.Ending) (ending, error) {
	switch end.Outcome {
	case bridge.RolledBack:
		return rolledBack, end.Err
	case bridge.Unknown: // another process may complete the operation with another response than x.sent
		x.sent = nil
		return unknown, end.Err
	case bridge.Recorded:
		x.record = *end.Record
		x.key = x.key.Of(end.Record.ExecutionID)
		return recorded, nil
	case bridge.InProgress:
		return inProgress, nil
	case bridge.Finished:
		return lookAgain, nil
	case bridge.Undone:
		x.key = x.key.Of(newExecutionID()) // the next operation must not have the id of the undone operation
		return lookAgain, nil
	case bridge.Failed:
		return failed, end.Err
	}
	return failed, fmt.Errorf("idem: unexpected outcome %d of an operation", end.Outcome)
}

// rollback ends the transaction of a fn that returned err or rejected. It returns ErrTxEnded if fn
// has ended the transaction of the claim, because writes of fn may be committed then.
func (x *execution) rollback(rejected *rejection, undo bool, err error) (ending, error) {
	holds, after := db.StillClaimed{Key: &x.key}, db.Load{Key: &x.key}
	isHeld := x.tx.Held(
		txn.Question{Request: &holds, Answer: func() bool { return holds.Holds }},
		// If the record of this execution exists after the rollback, fn has committed it.
		txn.Question{Request: &after, Answer: func() bool { return !after.Ours() }},
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
		return rolledBack, err
	}
	return failed, err
}

// complete records the response and commits, in one round trip. Once COMMIT is sent, the end of the
// caller's context no longer rolls anything back.
func (x *execution) complete(ctx context.Context, resp Response, state db.State) (ending, error) {
	resp = resp.normal()
	c, err := x.completion(&x.key, resp, state)
	if err != nil {
		return failed, err
	}
	x.sent = &resp
	x.trace.event(EventRecording, nil)
	x.askedAt = time.Now()
	err = x.tx.Commit(ctx, c)
	switch {
	case err == nil && !c.Found:
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
		return rolledBack, err
	case txn.Rerunnable(err):
		return rolledBack, err
	case c.Found: // the record was written, so this is an error of COMMIT, such as a deferred constraint
		return failed, err
	}
	return failed, completeError(err)
}

// completion returns the request that records resp under key. The execution id in key may be the id
// of an operation instead of the id in x.key.
func (x *execution) completion(key *db.Key, resp Response, state db.State) (*db.Complete, error) {
	header, err := resp.check(x.maxResponse)
	if err != nil {
		return nil, err
	}
	c := &db.Complete{Key: key, State: state, Status: resp.Status, Header: header, Body: resp.Body}
	if x.sealer != nil {
		if err := c.Seal(x.sealer); err != nil {
			return nil, fmt.Errorf("idem: the response could not be sealed, nothing is committed: %w", err)
		}
	}
	return c, nil
}

// tooSlow returns the error for a fn that took longer than a timeout of the server allows. The call
// does not run fn again, because fn would be too slow again.
func tooSlow(cause error) error {
	return fmt.Errorf("%w: the server ended the session, because fn left its transaction idle or open for longer than "+
		"idle_in_transaction_session_timeout or transaction_timeout allows: %w", ErrTxAborted, cause)
}

func completedRecord(c *db.Complete, resp Response, claimedAt time.Time) db.Record {
	return db.Record{
		SameHash: true, ExecutionID: c.Key.ExecutionID, State: c.State,
		Status: resp.Status, Header: resp.Header, Body: resp.Body,
		CreatedAt: claimedAt, CompletedAt: c.CompletedAt, ExpiresAt: c.ExpiresAt,
	}
}

// completeError explains why the record could not be completed.
func completeError(err error) error {
	switch {
	case txn.HasCode(err, db.Gone):
		return txn.Ended("the claimed record is gone, or the transaction is another one", nil)
	case txn.HasCode(err, "42501"):
		return fmt.Errorf("idem: the role of the transaction may not write idem.records; if fn changes the role (SET LOCAL ROLE), fn must reset it (RESET ROLE) before it returns: %w", err)
	}
	return hint(err)
}
