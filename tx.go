package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/hold"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

var (
	prepared       = txn.WithOwn(store.Statements)
	preparedAtOnce = txn.WithOwn(store.StatementsAtOnce)
	preparedHeld   = txn.WithOwn(append(append(store.Statements[:3:3], store.StatementsAtOnce[0]), store.OperationStatements...))
)

// finding is what a claim finds.
type finding int

const (
	claimed  finding = iota // nothing: the key is ours, and the transaction is open
	answered                // a live record, with the answer
	held                    // another transaction, which holds the key
	running                 // the record of an operation, which holds the key between its transactions
)

// ending is what the transaction that ran fn came to.
type ending int

const (
	failed    ending = iota // rolled back; the error is the answer
	undone                  // rolled back, for a reason that makes it worth another run
	rejecting               // rolled back; the rejection is to be recorded by another claim
	recorded                // the outcome is on record
	unknown                 // COMMIT was sent and not acknowledged
	elsewhere               // nothing: the key is to be waited for
	holding                 // the key has to be looked at again, at once: it is an operation's, or was
)

// execution is the part of a call that talks to the database: it claims the key, runs fn and records its response.
type execution struct {
	engine      txn.Engine
	key         store.Key
	fn          func(pgx.Tx) (Response, error)
	runner      hold.Runner                                      // executes the call instead of fn, in several transactions: package operation
	asHeld      hold.Execution                                   // what the runner sees of the call
	start       func(claimedAt time.Time) ([]txn.Request, error) // makes the claimed key an operation's, instead of fn
	maxResponse int
	sealer      Sealer        // nil to store responses plain
	wait        time.Duration // for whoever holds the key; zero is to claim at once or not at all
	trace       *trace

	tx        *txn.Tx
	claiming  store.Claim
	loading   store.Load
	record    store.Record // found, or just written
	claimedAt time.Time    // by the clock of the database
	previous  string       // the operation id of the claim that the transaction had made before, if it is a caller's
	rejection *Response    // the final answer of a fn whose writes are undone, to be recorded
	sent      *Response    // what the latest COMMIT was to record, nil if it was to record no response
}

// ask looks for an answer without claiming the key: one statement, outside of any transaction.
func (x *execution) ask(ctx context.Context) (found bool, err error) {
	x.loading = store.Load{Key: &x.key}
	engine := x.engine
	engine.Asker = nil // the leader is not past the pool: it may need another connection to claim
	if err := engine.Query(ctx, &x.loading); err != nil {
		return false, hint(err)
	}
	x.record = x.loading.Record
	return x.loading.Found && !x.loading.Expired() && x.record.State != store.Running, nil
}

// claim begins a transaction and claims the key in it: one round trip, or two if it takes over an expired record. After any
// finding but claimed, and after an error, the connection has been given back.
func (x *execution) claim(ctx context.Context) (finding, error) {
	x.claiming = store.Claim{Key: &x.key, AtOnce: x.wait == 0}
	x.loading = store.Load{Key: &x.key}
	x.engine.Patience = x.patience()
	requests := [3]txn.Request{&x.claiming, &x.loading, store.Savepoint{}}
	tx, err := x.engine.Open(ctx, requests[:x.travelling()]...)
	if err != nil {
		return heldIfLocked(err)
	}
	found, err := x.find(ctx, tx.Ask)
	switch {
	case err != nil:
		tx.CloseAfter(err)
		return heldIfLocked(err)
	case found == claimed:
		x.tx = tx
	default:
		go tx.Close() // the answer is known: nobody needs to wait for the rollback of nothing
	}
	return found, nil
}

// travelling is how many requests the claim consists of. Only the first step of an operation wants a savepoint.
func (x *execution) travelling() int {
	if x.runner != nil {
		return 3
	}
	return 2
}

// find tells what a claim and the load behind it have found. An expired record is taken over, for which ask makes another
// round trip in the same transaction.
func (x *execution) find(ctx context.Context, ask func(context.Context, ...txn.Request) error) (finding, error) {
	ours, createdAt, previous := x.claiming.Claimed, x.claiming.CreatedAt, x.claiming.Previous
	if !ours && x.loading.Expired() {
		takeover := store.TakeOver{Key: &x.key}
		x.loading = store.Load{Key: &x.key}
		requests := []txn.Request{&takeover, &x.loading}
		if x.claiming.AtOnce {
			requests = []txn.Request{store.Calm{}, &takeover, &x.loading}
		}
		if x.runner != nil {
			requests = append(requests, store.Savepoint{}) // behind the claim, which no step may undo
		}
		if err := ask(ctx, requests...); err != nil {
			return held, err
		}
		ours, createdAt, previous = takeover.Claimed, takeover.CreatedAt, takeover.Previous
	}
	switch {
	case ours:
		x.claimedAt, x.previous = createdAt, previous
		return claimed, nil
	case !x.loading.Found || x.loading.Expired():
		return held, nil
	}
	x.record = x.loading.Record
	if x.record.State == store.Running && x.record.SameHash {
		return running, nil
	}
	return answered, nil
}

// patience is how long a claim may be held up by SQL that has a lock on the record. The server sees to that if the claim is
// at once. Otherwise it is the wait that is left, and not so little that a busy server is taken for a held key.
func (x *execution) patience() time.Duration {
	if x.wait == 0 {
		return 0
	}
	return max(x.wait-time.Since(x.trace.started), time.Second)
}

// heldIfLocked makes a finding of an error that says that somebody holds a lock on the record.
func heldIfLocked(err error) (finding, error) {
	if txn.LockTimedOut(err) || errors.Is(err, txn.ErrBlocked) {
		return held, nil
	}
	return held, hint(err)
}

// run runs fn in the transaction of the claim, and commits its writes together with its response.
func (x *execution) run(ctx context.Context) (ending, error) {
	defer x.tx.Close() // also if fn panics
	if x.rejection != nil {
		return x.complete(ctx, *x.rejection, store.Failed)
	}
	x.trace.attempts++
	x.trace.event(EventExecuting, nil)
	var resp Response
	var rejected *rejection
	undo, err := x.tx.Run(x.key.OperationID, func(tx pgx.Tx) (bool, error) {
		var err error
		resp, err = x.fn(tx)
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

// runHeld gives the transaction of the claim to the Runner.
func (x *execution) runHeld(ctx context.Context) (ending, error) {
	defer x.tx.Close() // also if the function panics
	if x.rejection != nil {
		return x.complete(ctx, *x.rejection, store.Failed)
	}
	x.trace.attempts++
	x.trace.event(EventExecuting, nil)
	end := x.runner.Begin(ctx, x.asHeld, x.tx)
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

// after turns what a Runner came to into the ending of the call.
func (x *execution) after(end hold.Ending) (ending, error) {
	switch end.Outcome {
	case hold.Undone:
		return undone, end.Err
	case hold.Unknown: // whoever may have gone on from there has given the response
		x.sent = nil
		return unknown, end.Err
	case hold.Recorded:
		x.record = *end.Record
		x.key = x.key.Of(end.Record.OperationID)
		return recorded, nil
	case hold.Elsewhere:
		return elsewhere, nil
	case hold.Ended:
		return holding, nil
	case hold.Freed:
		x.key = x.key.Of(newOperationID()) // a new operation is not the one that was undone
		return holding, nil
	case hold.Failed:
		return failed, end.Err
	}
	return failed, fmt.Errorf("idem: outcome %d of an operation", end.Outcome)
}

// rollback ends the transaction of a fn that returned an error, or a rejection.
func (x *execution) rollback(rejected *rejection, undo bool, err error) (ending, error) {
	holds, after := store.Holds{Key: &x.key}, store.Load{Key: &x.key}
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
		SameHash: true, OperationID: c.Key.OperationID, State: c.State,
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
