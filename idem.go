// Package idem makes retried writes safe on Postgres.
//
// A client that gets no answer to a write does not know whether the write happened. The client can
// only ask again, and if the first attempt did happen, the write happens twice: two orders instead
// of one. The remedy is old: the client sends the same key with every attempt, and the server
// stores its answer under that key. The difficulty is to store exactly what was done. A record that
// is written before the effect, or after it, is wrong whenever the process dies in between.
//
// This package writes the effect, the key and the response in one transaction. It takes one call:
//
//	res, err := idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
//		// the write, on tx
//		return idem.Response{Status: 201, Body: body}, nil
//	})
//
// # Usage
//
// Use [Do] around a write. Use [DoJSON] if the answer is a Go value instead of a response. Use
// [DoTx] inside a transaction of the caller, such as the transaction of a job.
//
// Scope and key identify a call. The scope says who is calling and which operation: [Scope] joins
// such parts without ambiguity. The key comes from the client. The hash identifies the content of
// the request: if a client reuses a key for another request, the hash differs, and the call is
// refused. [HashJSON] hashes the content of a JSON document, not its formatting. [HashBytes] hashes
// any bytes.
//
// If the function returns an error, everything is rolled back and the key stays free. If it returns
// the error of [Reject], its writes are rolled back, but its answer is recorded and final.
// [ExecutionID] returns the id of the execution, for use in events and other systems.
//
// The records are stored in a table, which the migrations in package migrations create.
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
//   - A call that returns an error has committed nothing, unless the error is [ErrOutcomeUnknown]
//     or [ErrTxEnded].
//
// Less formally: one execution counts, and every caller gets its response. There is no response
// without its effect, and no effect without its response.
//
// The guarantee covers everything that is committed with the tx of the function: rows, jobs, an
// outbox, notifications. It does not cover what the function does to other systems, because
// Postgres cannot roll that back.
//
// # What the guarantee rests on
//
// The guarantee rests on the primary key of the table and on the atomicity of transactions. Two
// other mechanisms only save work. By an advisory lock a call recognizes a key in progress without
// blocking, and calls of one process wait for each other in memory. If one of these mechanisms were
// broken, an answer might come later, but it would still be right.
//
// No lease is involved. A key in progress is an open transaction, so no timeout has to be guessed:
//
//   - If the function fails or panics, the key is free as soon as the transaction is rolled back.
//   - If the process or the connection dies, the key is free as soon as the server notices.
//   - If the server dies, the key is free when the server is back.
//
// # Lost acknowledgements
//
// If COMMIT was sent and its answer is lost, only the database knows the outcome. Do then reads the
// record of the key, which says whether this execution was committed. If it was, the call succeeds.
// If the execution was not committed and no longer can be, Do runs the function again. The call
// returns ErrOutcomeUnknown in these cases:
//
//   - Postgres is unavailable for some seconds, or refuses to read the record.
//   - The COMMIT is still running some seconds after the end of the context, for example because it
//     waits for a synchronous standby.
//   - The TTL has passed meanwhile. The record may then have existed and expired.
//
// A COMMIT that was sent is never canceled. Until the TTL has passed, it is always right to call
// again with the same key.
//
// # Concurrency
//
// Calls with one key, on any number of processes:
//
//   - One executes. The others wait for it, up to [WithWait], and then replay its response.
//   - A waiting call holds no connection, so duplicates never use up the pool.
//   - Among the calls of one process and pool, one asks the database on behalf of the others.
//   - If the executing call fails, exactly one of the waiting calls takes over.
//   - A call that has waited as long as WithWait allows returns [ErrInProgress].
//
// Calls with different keys wait for each other only if their functions lock the same rows.
//
// # What the function must not do
//
//   - It must not end the transaction. Commit and Rollback of the tx return an error, and the call
//     fails with ErrTxEnded. A COMMIT by raw SQL is detected only after it has happened: see
//     ErrTxEnded.
//   - It must not ignore an error of a statement. The error aborts the transaction, and the call
//     fails with [ErrTxAborted]. Run a statement that may fail under a savepoint, which tx.Begin
//     sets.
//   - It must not keep the tx. Every method of the tx fails once the function has returned.
//   - It must not have effects that cannot be repeated, because it runs again after a serialization
//     failure, a deadlock, or a COMMIT that did not happen.
//   - It should not call Do on the same pool. Each such call needs a second connection, and the
//     pool may run out of connections. Use DoTx.
//
// The function gets no context as an argument. It uses the ctx that was passed to Do.
//
// # Responses at rest
//
// Responses are stored unencrypted, unless the call has the option [WithSealer]. Package seal
// provides a Sealer. A call that cannot decrypt the recorded response returns [ErrUnreadable] and
// executes nothing.
//
// # Cost
//
// A first run makes as many round trips as a plain transaction around the same statements, because
// the claim is sent together with BEGIN, and the response together with COMMIT. A replay makes one
// round trip, writes nothing and takes no transaction id. A connection that prepares statements, as
// pgx does by default, prepares the five statements of this package in one round trip when it is
// first used.
//
// This package sends its own statements below the query interface of pgx. So query tracers see the
// statements of the function, but neither BEGIN and COMMIT nor the statements on records. To see
// how calls end, use [WithObserver] with [LogObserver] or package idemotel.
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

// Do makes the write in fn safe to retry. In one transaction of pool it claims the key, runs fn and
// records the response of fn. So the effect and the response are committed together or not at all.
// If a response is recorded for the key, Do returns that response and does not call fn.
//
// The scope says who is calling and which operation (see Scope). The key comes from the client. The
// hash says whether two requests with the same key have the same content (see HashJSON and
// HashBytes).
//
// fn must make all its writes on tx. It must not keep tx, commit it or roll it back. Do calls fn
// again after a serialization failure, a deadlock, or a COMMIT that turned out not to have
// happened. All writes of the earlier run have then been rolled back. If fn returns an error,
// nothing is committed, the key is free, and Do returns that error as it is. If fn returns the
// error of Reject, its writes are rolled back and its answer is final. If fn panics, the
// transaction is rolled back and the panic continues.
//
// If ctx ends before COMMIT is sent, everything is rolled back. Once COMMIT is sent, Do waits for
// its outcome for a limited time even if ctx ends. If the acknowledgement of COMMIT is lost, Do
// reads the record to learn the outcome. So a Result with a nil error always has a committed
// record. An error other than ErrOutcomeUnknown and ErrTxEnded always means that this call has
// committed nothing.
func Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash Hash, fn func(tx pgx.Tx) (Response, error), opts ...Option) (Result, error) {
	c, err := newCall(scope, key, hash, fn, opts)
	return c.traced(ctx, false, func() (Result, error) {
		if err := cmp.Or(err, c.checkPool(pool)); err != nil {
			return Result{}, err
		}
		return c.do(ctx, pool)
	})
}

// DoTx is Do inside a transaction of the caller, such as the transaction of a job. The claim, the
// writes of fn and the response become part of tx and are committed with it or not at all. DoTx
// does not commit, retry or wait. If the key is in progress, it returns ErrInProgress at once.
//
// In the first 32 calls that run a fn in the same tx, fn runs under a savepoint. If fn fails or
// rejects, its writes are rolled back and tx remains usable, unless the connection was lost or fn
// ended the transaction. Later calls have no savepoint: a fn that fails aborts tx, so that partial
// writes are never committed, and a fn that rejects fails with ErrTxAborted. To make more than 32
// calls, begin a savepoint for each with tx.Begin.
//
// Other calls see the response once tx is committed. Until then they find the key in progress.
// After a serialization failure the caller has to run all of tx again.
//
// The record expires 24 hours after the call, unless [WithTTL] sets another time. The key then
// counts as new. For example, if a person may rerun a monthly job a week later, the job needs a TTL
// of more than a week.
//
// With WithWait, WithTxOptions, WithRetries or WithReplayLikely, DoTx returns an error, because
// these options have no meaning in a transaction of the caller.
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

// ExecutionID returns the id of the execution that tx belongs to. tx must be the transaction that
// fn got, or a savepoint begun on it. ExecutionID reports false for any other tx, such as a tx that
// the program has wrapped in a type of its own. It also reports false in an HTTP request without a
// key.
//
// The id stays the same when fn runs again within one call, and is recorded with the response. Put
// it into events, and use it as the key of requests to other systems.
func ExecutionID(tx pgx.Tx) (string, bool) { return txn.ExecutionID(tx) }

// State is the state of a key.
type State string

const (
	StateUnused     State = "unused"     // no record and no call in progress: a call would execute
	StateProcessing State = "processing" // a call or an operation holds the key, or fn ended its transaction (ErrTxEnded)
	StateCompleted  State = "completed"  // the effect is committed
	StateFailed     State = "failed"     // fn rejected: its effect was rolled back, or undone if it was an operation
)

// Entry describes the state of a key. It does not contain the response.
type Entry struct {
	State       State
	ExecutionID string    // id of the recorded execution or the running operation; empty while a transaction holds the key
	Since       time.Time // start of the claim or of the transaction that holds the key; zero if the role may not see it
	CompletedAt time.Time
	ExpiresAt   time.Time
}

// Lookup returns the state of a key without claiming it. It writes nothing. Use it for a page that
// shows progress. A Lookup before Do is not necessary. The times are by the clock of the database.
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
	// Two statements are needed. The first reads which transaction holds the advisory lock, and the
	// second reads the record. An execution releases its lock only after its record has become
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
	case live.Found && r.State == db.Running: // a running operation has neither CompletedAt nor ExpiresAt
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

// jsonResponse encodes value, which fn returned with err, as a response. It also returns the value
// that a replay would decode from the response. If a replay could not decode it, jsonResponse
// returns an error, so that the response is not committed.
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
