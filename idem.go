// Package idem makes retried writes safe on Postgres.
//
// A client that gets no answer to a write does not know whether it happened. All it can do is to ask again, and if the first
// attempt did happen after all, there are two orders. The remedy is old: the client sends the same key with every attempt,
// and the server remembers what it answered. The difficulty is to remember exactly what was done. A record that is written
// before the effect, or after it, is wrong whenever something dies in between.
//
// This package writes the effect, the key and the response in one transaction, in one call:
//
//	res, err := idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
//		// the write, on tx
//		return idem.Response{Status: 201, Body: body}, nil
//	})
//
// # Usage
//
// Use [Do] around a write of your own, [DoJSON] if the answer is a value rather than a response, and [DoTx] inside a
// transaction that you already have, such as the one of a job.
//
// A call is told apart by its scope and key. The scope says who is calling and which operation: [Scope] joins such parts
// without ambiguity. The key is the caller's. The hash says what the request asks for, so that a key that is used for
// another request is refused rather than answered: [HashJSON] hashes what a JSON document says, whatever its spelling, and
// [HashBytes] hashes anything.
//
// The function may return an error, which rolls everything back and leaves the key free, or [Reject], which undoes its writes
// and makes the answer final all the same. It can ask [ExecutionID] for a name of this execution, to carry into events and
// other systems.
//
// The table comes from the migrations in package migrations.
//
// # What is guaranteed
//
// For one scope and key, while its record is retained:
//
//   - At most one execution of the function is ever committed.
//   - Every call that returns a [Result] without an error returns the response of that execution, byte for byte.
//   - The record exists if and only if the effect does. (A rejection is a record whose effect is to have none.)
//   - A call that returns an error has committed nothing, except where that error is [ErrOutcomeUnknown] or [ErrTxEnded].
//
// Less formally: there is one true execution, and each caller is shown that one. You will not see a response whose effect
// is missing, and you will not find an effect whose response is lost.
//
// This covers what the function writes through the tx that it is given, and whatever commits with it: rows, jobs, an outbox,
// notifications. It does not cover what the function does to other systems. Postgres cannot roll those back.
//
// # What it rests on
//
// The guarantee rests on the primary key of the table and on the atomicity of transactions. Everything else is a shortcut
// that saves work: the advisory lock by which a key in flight is recognised without blocking, and the memory in which calls
// of one process wait for each other. With a shortcut broken the answer may come later, never wrong.
//
// No lease is involved. A key in flight is a transaction that is open, so that no timeout has to be guessed:
//
//   - If the function fails, or panics, the key is free as soon as that is rolled back.
//   - If the process or the connection dies, the key is free as soon as the server notices.
//   - If the server dies, the key is free when it is back.
//
// # Lost acknowledgements
//
// If COMMIT was sent and its answer did not come, the database alone knows what happened. Do asks it: the record of the
// key says whether this very execution was committed. If it was, the call succeeds; if it was not, and no longer can be, the
// function is run again. The answer is ErrOutcomeUnknown only if Postgres cannot be asked within some seconds, if the COMMIT
// goes on for longer than that after the end of the context, as one that waits for a synchronous standby may, or if the TTL has
// passed meanwhile, so that the record may have come and gone. A COMMIT that was sent is never cancelled. Until the TTL has
// passed, asking again with the same key is always right.
//
// # Concurrency
//
// Calls with one key, on any number of processes:
//
//   - One executes. The others wait for it, up to [WithWait], and then replay its response.
//   - While a call waits it holds no connection, so that duplicates never take the pool away from others.
//   - In one process and pool, a single call asks the database on behalf of all that wait.
//   - If the one that executes fails, exactly one of the others takes over.
//   - A call that has waited in vain gets [ErrInProgress].
//
// Calls with different keys do not wait for each other, other than for what their functions lock.
//
// # What the function must not do
//
//   - It must not end the transaction: the methods that would are refused, and the call fails with ErrTxEnded. A COMMIT by
//     raw SQL is found out afterwards, and by then it has happened: see ErrTxEnded.
//   - It must not ignore an error of a statement: the transaction is aborted then, and the call fails with [ErrTxAborted].
//     A statement that is allowed to fail belongs under a savepoint, which tx.Begin begins.
//   - It must not keep the tx. Every method of it fails once the function has returned.
//   - It must not have effects that cannot be repeated, because it is run again after a serialization failure, a deadlock, or
//     a COMMIT that did not happen.
//   - It should not call Do on the same pool, which may run out of connections that way. DoTx is for that.
//
// The function is given no context of its own: it uses the one of its caller.
//
// # Responses at rest
//
// A response is stored as it is, for as long as its TTL, unless [WithSealer] encrypts it: package seal has the Sealer for that. A
// call that cannot open what is recorded gets [ErrUnreadable], and executes nothing.
//
// # Cost
//
// A first run makes as many round trips as a plain transaction around the same statements, because the claim travels with
// BEGIN and the response with COMMIT. A replay makes one, writes nothing and takes no transaction id. A connection that
// prepares statements, as pgx does by default, is taught five of them when it is first used, in one round trip.
//
// The statements of this package are sent below the query interface of pgx, so that its query tracers see those of the
// function but neither BEGIN and COMMIT nor the claim. Use [WithObserver] to see how calls end,
// with [LogObserver] or package idemotel.
package idem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// Do makes the write in fn safe to retry. It claims the key, runs fn and records fn's response in one transaction of pool,
// so that the effect of fn and its response are committed together or not at all. A call with a key whose response is
// recorded gets that response, and fn is not called.
//
// The scope says who is calling and which operation (see Scope), the key is the caller's, and the hash tells whether two
// requests with one key are the same (see HashJSON and HashBytes).
//
// fn makes its writes on tx and nowhere else, does not keep tx, does not commit it or roll it back, and may be called
// more than once: after a serialization failure, a deadlock, or a COMMIT that turned out not to have happened, everything
// it did has been rolled back and it starts afresh. If fn returns an error nothing is committed, the key is free, and Do
// returns that error as it is. If fn returns Reject, its writes are undone and its answer is final. If fn panics, the
// transaction is rolled back and the panic goes on.
//
// If ctx ends before COMMIT is sent, everything is rolled back. Once COMMIT is sent, Do waits for its outcome for a bounded
// time even if ctx ends; if the acknowledgement is lost it asks the record. A Result with a nil error is therefore always
// backed by a committed record, and an error other than ErrOutcomeUnknown and ErrTxEnded always means that this call has
// committed nothing.
func Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash, fn func(tx pgx.Tx) (Response, error), opts ...Option) (result Result, err error) {
	c, err := newCall(scope, key, hash, fn, opts)
	c.trace.start(ctx, c.name, scope, key, false)
	ended := false
	defer func() { c.trace.end(ended, result, err) }()
	if err == nil {
		err = c.fits(pool)
	}
	if err == nil {
		result, err = c.do(ctx, pool)
	}
	ended = true
	return result, err
}

// DoTx is Do inside a transaction that the caller already has: a job, a message handler, a unit of work of its own. The
// claim, fn's writes and the response become part of tx and are committed, or not, with it. DoTx does not commit, does not
// retry and does not wait: a key in progress elsewhere is ErrInProgress at once.
//
// For the first 32 calls with one tx that execute, fn runs under a savepoint. If it fails or rejects, its writes are undone and
// tx is as usable as before, unless the connection was lost or fn ended the transaction. After those, a fn that fails aborts tx,
// so that nothing half done is committed, and Reject is ErrTxAborted: to keep more calls apart, give each a savepoint of the
// caller's own, by tx.Begin. The response counts for others once tx is committed; until then the key
// is in progress for them. A serialization failure is for the caller to handle, who has to run the whole of tx again.
//
// The record expires 24 hours after the call unless [WithTTL] says otherwise, and the key is then new. A monthly job that a person may
// run again a week later needs a TTL of more than that week.
//
// WithWait, WithTxOptions and WithRetries have no meaning here and are refused.
func DoTx(ctx context.Context, tx pgx.Tx, scope, key string, hash Hash, fn func(tx pgx.Tx) (Response, error), opts ...Option) (result Result, err error) {
	c, err := newCall(scope, key, hash, fn, opts)
	c.trace.start(ctx, c.name, scope, key, true)
	ended := false
	defer func() { c.trace.end(ended, result, err) }()
	if err == nil && tx == nil {
		err = errors.New("idem: tx is nil")
	}
	if err == nil && c.forDoOnly != "" {
		err = errors.New("idem: " + c.forDoOnly + " has no meaning for DoTx: the transaction is the caller's")
	}
	if err == nil {
		c.waiting.wait = 0
		result, err = c.join(ctx, tx, function(fn))
	}
	ended = true
	return result, err
}

// ExecutionID returns the id of the execution that tx belongs to, where tx is the one that fn was given or a savepoint
// begun on it. It knows no other: not a tx that the program has wrapped in a type of its own, and not that of an HTTP request
// without a key, which has no record. The id stays the same when fn is run again within one call, and is recorded with the
// response: carry it into events, and into other systems as the key of a request that follows from this one.
func ExecutionID(tx pgx.Tx) (string, bool) { return txn.ExecutionID(tx) }

// State is the state of a key at some moment.
type State string

const (
	StateUnused     State = "unused"     // no record and no call in progress: a call would execute
	StateProcessing State = "processing" // held by a transaction or an operation, or left so by an fn that ended its transaction (ErrTxEnded)
	StateCompleted  State = "completed"  // the effect is committed
	StateFailed     State = "failed"     // rejected: the effect was rolled back or undone
)

// Entry is the state of a key, without the stored response.
type Entry struct {
	State       State
	ExecutionID string    // of the recorded execution or of the running operation; empty while a transaction holds the key
	Since       time.Time // when the key was claimed, or when the transaction that holds it began; zero if the role may not see that
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Lookup returns the state of a key without claiming it. It writes nothing. Use it for a page that shows progress. A caller need
// not look before it calls Do, which decides by itself. The times are by the clock of the database.
//
// Lookup recognizes a key in progress by its advisory lock. Two keys may share a lock, so Lookup may, very rarely, return
// StateProcessing for an unused key.
func Lookup(ctx context.Context, pool *pgxpool.Pool, scope, key string) (Entry, error) {
	if err := checkNames(scope, key); err != nil {
		return Entry{}, err
	}
	if pool == nil {
		return Entry{}, errors.New("idem: pool is nil")
	}
	// The holder is read before the record, by a statement of its own. An execution releases its lock after its record has become
	// visible, so at least one of the two statements sees the execution.
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	holder := db.HolderOf(db.LockOf(scope, key))
	if err := engine.Query(ctx, &holder); err != nil {
		return Entry{}, hint(err)
	}
	live := db.Live{Scope: scope, Key: key}
	if err := engine.Query(ctx, &live); err != nil {
		return Entry{}, hint(err)
	}
	switch r := &live.LiveRow; {
	case live.Found && r.State == db.Running: // a running operation has not completed and does not expire
		return Entry{State: StateProcessing, ExecutionID: r.ExecutionID, Since: r.CreatedAt}, nil
	case live.Found:
		return Entry{
			State: State(r.State), ExecutionID: r.ExecutionID,
			Since: r.CreatedAt, CompletedAt: r.CompletedAt, ExpiresAt: r.ExpiresAt,
		}, nil
	case holder.Held:
		return Entry{State: StateProcessing, Since: holder.Since}, nil
	}
	return Entry{State: StateUnused}, nil
}

// DoJSON is Do for a fn that answers with a value instead of a response. The value is stored as JSON, with status 200, and
// what is returned is always decoded from what is stored, so that the first caller and its duplicates get the same. If
// Result.Rejected is true the value is the zero T and the answer is in Result.Response.
//
// If a stored response no longer decodes into T, the Result is returned together with the error.
func DoJSON[T any](ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash, fn func(tx pgx.Tx) (T, error), opts ...Option) (T, Result, error) {
	var value T
	var encode func(tx pgx.Tx) (Response, error)
	if fn != nil {
		encode = func(tx pgx.Tx) (resp Response, err error) {
			resp, value, err = jsonResponse(fn(tx))
			return resp, err
		}
	}
	result, err := Do(ctx, pool, scope, key, hash, encode, opts...)
	if err == nil && !result.Rejected && !result.Replayed {
		return value, result, nil
	}
	var replayed T
	if err == nil && !result.Rejected {
		err = decodeJSON(result.Body, &replayed)
	}
	return replayed, result, err
}

// jsonResponse returns the response that stores the value of fn, and the value as a replay will show it: one that could
// not be shown again must not be committed.
func jsonResponse[T any](value T, err error) (resp Response, stored T, _ error) {
	if err != nil {
		return resp, stored, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return resp, stored, fmt.Errorf("idem: the result of fn cannot be encoded: %w", err)
	}
	err = decodeJSON(body, &stored)
	return Response{Status: 200, Body: body}, stored, err
}

func decodeJSON[T any](body []byte, value *T) error {
	var decoded T
	if err := json.Unmarshal(body, &decoded); err != nil {
		return fmt.Errorf("idem: the stored response does not decode into %T: %w", value, err)
	}
	*value = decoded
	return nil
}
