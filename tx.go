package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/txn"
)

// begin has the work done in the transaction of the claim, or records the rejection that it has come to before.
func (x *execution) begin(ctx context.Context) (ending, error) {
	defer x.tx.Close() // also if the work panics
	if x.rejection != nil {
		return x.complete(ctx, *x.rejection, db.Failed)
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
		return x.complete(ctx, resp, db.Completed)
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
	holds, after := db.StillClaimed{Key: &x.key}, db.Load{Key: &x.key}
	isHeld := x.tx.Held(
		txn.Question{Request: &holds, Answer: func() bool { return holds.Holds }},
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
func (x *execution) complete(ctx context.Context, resp Response, state db.State) (ending, error) {
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
		return undone, err
	case txn.Rerunnable(err):
		return undone, err
	case c.Found: // what COMMIT itself answers is passed on as it is
		return failed, err
	}
	return failed, completeError(err)
}

// completion returns the request that records a response.
func (x *execution) completion(resp Response, state db.State) (*db.Complete, error) {
	return x.completionOf(&x.key, resp, state)
}

// completionOf returns the request that records a response under a key that is not the claim's own.
func (x *execution) completionOf(key *db.Key, resp Response, state db.State) (*db.Complete, error) {
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

// tooSlow is the error of a fn that has let its transaction be for longer than the server allows. To run it again would be
// to wait for the same once more.
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

// completeError names what fn has done that keeps its record from being completed.
func completeError(err error) error {
	switch {
	case txn.HasCode(err, db.Gone):
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
	if r := &x.record; r.State != db.Processing && x.sent != nil {
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
