package idem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	if err == nil && pool == nil {
		err = errors.New("idem: pool is nil")
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
		result, err = c.join(ctx, tx)
	}
	ended = true
	return result, err
}

// OperationID returns the id of the execution that tx belongs to, where tx is the one that fn was given or a savepoint
// begun on it. It knows no other: not a tx that the program has wrapped in a type of its own, and not that of an HTTP request
// without a key, which has no record. The id stays the same when fn is run again within one call, and is recorded with the
// response: carry it into events, and into other systems as the key of a request that follows from this one.
func OperationID(tx pgx.Tx) (string, bool) { return txn.OperationID(tx) }

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
