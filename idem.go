// Package idem makes retried writes safe on Postgres.
//
// A client that gets no answer to a write does not know whether the write happened. The client can
// only ask again, and if the first attempt did happen, there are two orders. The remedy is old: the
// client sends the same key with every attempt, and the server stores its answer under that key.
// The difficulty is to store exactly what was done. A record that is written before the effect, or
// after it, is wrong whenever the process dies in between.
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
// Use [Do] around a write, [DoJSON] if the answer is a value rather than a response, and [DoTx]
// inside a transaction of the caller, such as the transaction of a job.
//
// Scope and key identify a call. The scope says who is calling and which operation: [Scope] joins
// such parts without ambiguity. The key comes from the client. The hash identifies the content of
// the request, so that a key that is used for another request is refused rather than answered.
// [HashJSON] hashes the content of a JSON document, whatever its spelling, and [HashBytes] hashes
// anything.
//
// The function may return an error, which rolls everything back and leaves the key free. It may
// also return [Reject], which undoes its writes and makes the answer final all the same.
// [ExecutionID] returns an id of the execution, to carry into events and other systems.
//
// The table comes from the migrations in package migrations.
//
// # What is guaranteed
//
// For one scope and key, while the record is retained:
//
//   - At most one execution of the function is ever committed.
//   - Every call that returns a [Result] without an error returns the response of that execution,
//     byte for byte.
//   - The record exists if and only if the effect does. (A rejection is a record without an
//     effect.)
//   - A call that returns an error has committed nothing, except where that error is
//     [ErrOutcomeUnknown] or [ErrTxEnded].
//
// Less formally: one execution counts, and every caller gets its response. There is no response
// without its effect, and no effect without its response.
//
// The guarantee covers what the function writes through its tx, and whatever commits with it: rows,
// jobs, an outbox, notifications. It does not cover what the function does to other systems, which
// Postgres cannot roll back.
//
// # What the guarantee rests on
//
// The guarantee rests on the primary key of the table and on the atomicity of transactions.
// Everything else only saves work: the advisory lock by which a call recognizes a key in progress
// without blocking, and the memory in which calls of one process wait for each other. If one of
// these were broken, an answer might come later, but it would still be right.
//
// No lease is involved. A key in progress is an open transaction, so no timeout has to be guessed:
//
//   - If the function fails or panics, the key is free as soon as the transaction is rolled back.
//   - If the process or the connection dies, the key is free as soon as the server notices.
//   - If the server dies, the key is free when the server is back.
//
// # Lost acknowledgements
//
// If COMMIT was sent and its answer is lost, only the database knows the outcome. Do reads the
// record of the key, which says whether this very execution was committed. If it was, the call
// succeeds. If it was not, and no longer can be, Do runs the function again. The call returns
// ErrOutcomeUnknown only in three cases: Postgres is unavailable for some seconds; the COMMIT takes
// longer than that after the end of the context, for example because it waits for a synchronous
// standby; or the TTL has passed meanwhile, so that the record may have existed and expired. A
// COMMIT that was sent is never canceled. Until the TTL has passed, it is always right to call
// again with the same key.
//
// # Concurrency
//
// Calls with one key, on any number of processes:
//
//   - One executes. The others wait for it, up to [WithWait], and then replay its response.
//   - A waiting call holds no connection, so duplicates never use up the pool.
//   - In one process and pool, one call asks the database on behalf of all that wait.
//   - If the executing call fails, exactly one of the others takes over.
//   - A call whose wait is over returns [ErrInProgress].
//
// Calls with different keys do not wait for each other, except for what their functions lock.
//
// # What the function must not do
//
//   - It must not end the transaction. The methods that would are refused, and the call fails with
//     ErrTxEnded. A COMMIT by raw SQL is detected only after it has happened: see ErrTxEnded.
//   - It must not ignore an error of a statement: the transaction is aborted then, and the call
//     fails with [ErrTxAborted]. A statement that is allowed to fail belongs under a savepoint,
//     which tx.Begin begins.
//   - It must not keep the tx. Every method of the tx fails once the function has returned.
//   - It must not have effects that cannot be repeated, because it runs again after a serialization
//     failure, a deadlock, or a COMMIT that did not happen.
//   - It should not call Do on the same pool, which may run out of connections that way. Use DoTx.
//
// The function gets no context. It uses the one of its caller.
//
// # Responses at rest
//
// A response is stored as it is, for its TTL, unless [WithSealer] encrypts it. Package seal has the
// Sealer for that. A call that cannot open the recorded response returns [ErrUnreadable] and
// executes nothing.
//
// # Cost
//
// A first run makes as many round trips as a plain transaction around the same statements, because
// the claim travels with BEGIN and the response with COMMIT. A replay makes one round trip, writes
// nothing and takes no transaction id. A connection that prepares statements, as pgx does by
// default, prepares five of them when it is first used, in one round trip.
//
// The statements of this package are sent below the query interface of pgx. Query tracers see the
// statements of the function, but not BEGIN, COMMIT and the claim. To see how calls end, use
// [WithObserver] with [LogObserver] or package idemotel.
package idem

import (
	"cmp"
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

// Do makes the write in fn safe to retry. It claims the key, runs fn and records the response of fn
// in one transaction of pool, so that the effect and the response are committed together or not at
// all. If a response is recorded for the key, Do returns that response and does not call fn.
//
// The scope says who is calling and which operation (see Scope). The key comes from the client. The
// hash says whether two requests with one key are the same (see HashJSON and HashBytes).
//
// fn makes its writes on tx and nowhere else, does not keep tx, and does not commit it or roll it
// back. fn may be called more than once: after a serialization failure, a deadlock, or a COMMIT
// that turned out not to have happened. All its writes have then been rolled back. If fn returns an
// error, nothing is committed, the key is free, and Do returns that error as it is. If fn returns
// Reject, its writes are undone and its answer is final. If fn panics, the transaction is rolled
// back and the panic continues.
//
// If ctx ends before COMMIT is sent, everything is rolled back. Once COMMIT is sent, Do waits for
// its outcome for a limited time even if ctx ends. If the acknowledgement is lost, Do reads the
// record. A Result with a nil error is therefore always backed by a committed record, and an error
// other than ErrOutcomeUnknown and ErrTxEnded always means that this call has committed nothing.
func Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash, fn func(tx pgx.Tx) (Response, error), opts ...Option) (Result, error) {
	c, err := newCall(scope, key, hash, fn, opts)
	return c.traced(ctx, false, func() (Result, error) {
		if err := cmp.Or(err, c.checkPool(pool)); err != nil {
			return Result{}, err
		}
		return c.do(ctx, pool)
	})
}

// DoTx is Do inside a transaction of the caller, such as that of a job or a message handler. The
// claim, the writes of fn and the response become part of tx and are committed with it or not at
// all. DoTx does not commit, retry or wait: for a key in progress elsewhere it returns
// ErrInProgress at once.
//
// For the first 32 calls with one tx that execute, fn runs under a savepoint. If fn fails or
// rejects, its writes are undone and tx remains usable, unless the connection was lost or fn ended
// the transaction. In later calls, a fn that fails aborts tx, so that partial writes are never
// committed, and Reject is ErrTxAborted. To make more calls, give each a savepoint of its own with
// tx.Begin.
//
// The response is visible to other calls once tx is committed. Until then the key is in progress
// for them. After a serialization failure the caller has to run all of tx again.
//
// The record expires 24 hours after the call unless [WithTTL] says otherwise, and the key is then
// new. A monthly job that a person may run again a week later needs a TTL of more than a week.
//
// WithWait, WithTxOptions and WithRetries have no meaning here and are refused.
func DoTx(ctx context.Context, tx pgx.Tx, scope, key string, hash Hash, fn func(tx pgx.Tx) (Response, error), opts ...Option) (Result, error) {
	c, err := newCall(scope, key, hash, fn, opts)
	return c.traced(ctx, true, func() (Result, error) {
		switch {
		case err != nil:
			return Result{}, err
		case tx == nil:
			return Result{}, errors.New("idem: tx is nil")
		case c.forDoOnly != "":
			return Result{}, errors.New("idem: " + c.forDoOnly + " has no meaning for DoTx: the transaction is the caller's")
		}
		c.waiting.wait = 0
		return c.join(ctx, tx, function(fn))
	})
}

// ExecutionID returns the id of the execution that tx belongs to. tx must be the one that fn was
// given, or a savepoint begun on it. ExecutionID reports false for any other tx: one that the
// program has wrapped in its own type, or that of an HTTP request without a key, which has no
// record.
//
// The id stays the same when fn runs again within one call, and is recorded with the response.
// Carry it into events, and use it as the key of further requests to other systems.
func ExecutionID(tx pgx.Tx) (string, bool) { return txn.ExecutionID(tx) }

// State is the state of a key.
type State string

const (
	StateUnused     State = "unused"     // no record and no call in progress: a call would execute
	StateProcessing State = "processing" // held by a transaction or an operation, or left by a fn that ended its transaction (ErrTxEnded)
	StateCompleted  State = "completed"  // the effect is committed
	StateFailed     State = "failed"     // rejected: the effect was rolled back or undone
)

// Entry is the state of a key and its times. It has no response.
type Entry struct {
	State       State
	ExecutionID string    // of the recorded execution or running operation; empty while a transaction holds the key
	Since       time.Time // when the key was claimed or its transaction began; zero if the role may not see that
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Lookup returns the state of a key without claiming it. It writes nothing. Use it for a page that
// shows progress. Do needs no Lookup before it. The times are by the clock of the database.
//
// Lookup recognizes a key in progress by its advisory lock. Two keys may share a lock, so Lookup
// may, very rarely, return StateProcessing for an unused key.
func Lookup(ctx context.Context, pool *pgxpool.Pool, scope, key string) (Entry, error) {
	if err := checkNames(scope, key); err != nil {
		return Entry{}, err
	}
	if pool == nil {
		return Entry{}, errors.New("idem: pool is nil")
	}
	// The holder is read before the record, by a statement of its own. An execution releases its
	// lock after its record has become visible, so at least one of the two statements sees the
	// execution.
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

// DoJSON is Do for a fn that returns a value instead of a response. The value is stored as JSON,
// with status 200. The returned value is always decoded from the stored form, so that the first
// caller and its duplicates get the same value. If Result.Rejected is true, the value is the zero T
// and the answer is in Result.Response.
//
// If a stored response no longer decodes into T, DoJSON returns the Result together with the error.
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

// jsonResponse returns the response that stores the value of fn, and the value as a replay decodes
// it. A value that a replay could not decode is an error, so that it is never committed.
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
